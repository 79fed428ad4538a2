// Package place says which machine has which node of a fabric that spans machines.
//
// It is a function: the same graph, machines, rule and record give the same Placement, in whatever order the machines
// are named. What is on record stays where it is, whoever joins or leaves; a rule only decides about nodes that nobody
// has yet. So a placement is made once, kept (Text writes it, Parse reads it) and extended when the fabric grows.
//
//	rule, err := place.ParseRule("leaf")
//	p, err := place.Do(g, []string{"a", "b"}, rule, nil)
//	f := p.Figures(g)                        // what each machine has, and how many cables cross
//	later, err := place.Do(larger, []string{"a", "b", "c"}, rule, p)
//
// It knows graphs and names, and nothing of who the machines are or where a placement is kept.
package place
