module softib

go 1.26
