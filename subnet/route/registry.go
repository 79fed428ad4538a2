package route

// engines is the registry: one row per engine.
var engines = []Engine{
	minHop{},
	upDown{},
	fatTree{},
	dimOrder{},
	dfsssp{},
	nue{},
	dragonfly{},
}
