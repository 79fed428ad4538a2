//go:build !plant

package link

// plantCredit is a bug that a build with the tag plant can switch on, to show
// that the checks over a whole fabric find it: a long packet gives back one block
// less than it took.
const plantCredit = false

// plantHeadroom is another: the threshold of priority flow control leaves no room for what is still on its way.
const plantHeadroom = false
