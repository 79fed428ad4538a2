package route

// minHop routes any network by shortest ways. They can wait for each other in a circle where the network has rings (IBA
// leaves that to the manager): judge the tables, or use updn, dfsssp, nue or dor there. In a tree they are those of
// ftree, as long as going up and down is shortest, and in a whole torus or mesh those of dor, with its lanes: both
// share the links better than any choice that knows nothing of the shape, and cannot deadlock.
type minHop struct{}

func (minHop) Name() string { return "minhop" }

func (minHop) Compute(n *Network, o Options) (*Tables, error) {
	if t, err := newTree(n, Options{}); err == nil {
		if _, shortest := newSpreaderShape(t.w, t.dir).legal(); shortest {
			return treeTables("minhop", n, t, o)
		}
	}
	if tab, err := (dimOrder{}).whole(n, o); err == nil {
		tab.Engine = "minhop"
		return tab, nil
	}
	r := newSpreader(n, newAdjacency(n), nil)
	r.all()
	return &Tables{Engine: "minhop", LFT: r.lft, VLs: 1, made: n}, nil
}
