// Package doctest runs what the documents under docs/ and examples/ tell people to type, and compares what comes out
// with what they were told to expect. It has only tests.
//
// A document's ```console blocks are run in their order, in one shell, with a runtime folder, a state folder and a home
// of their own and the command as make builds it. In a block:
//
//   - A line that begins with "$ " is a command; one that begins with "> " goes on with it. What follows, up to the
//     next command, is what it prints, on either stream. A command after which nothing follows may print what it likes.
//   - Words are compared, whatever the space between them, and empty lines do not count. A line of "..." stands for any
//     lines, and "..." within a line for any text.
//   - A figure stands for any figure of its kind: a number with a point, a colon, an exponent, a unit, or of three
//     digits and more, or a date; bars of # are left out. So documents show what was really printed. Small numbers,
//     a word that is alone in its line, names (leaf1[5]) and hexadecimal numbers are to be the same.
//   - A command is to succeed.
//
// An HTML comment above a block, which no reader sees, says what is special about it:
//
//	<!-- doctest: skip -->          it is not run
//	<!-- doctest: fails -->         its last command fails
//	<!-- doctest: mixed -->         what its last command prints may come in any order of lines
//	<!-- doctest: after COMMAND --> before its last command, wait until this one succeeds: it shows what is awaited
//	<!-- doctest: again -->         its last command may be too early, and nothing shows when it is not: it is run
//	                                until it prints what it should
//	<!-- doctest: listens PORT -->  after its last command, wait until something listens on this TCP port
//	<!-- doctest: writes FILE -->   after its last command, wait until there is something in this file
//	<!-- doctest: pasted -->        it is pasted, in one piece and no prompt awaited, with what begins the next block,
//	                                up to the first command whose output is shown
//
// There may be several. Every wait has a deadline.
//
// The page of a fabric is at 127.0.0.1:8470 unless that is taken. Documents say so; here the port is the one that the
// fabric has got.
package doctest
