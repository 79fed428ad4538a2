package nic

// Ways of the caches: what a set holds. Nobody publishes them. One way for requests is part of the fit (see Models):
// it makes hits rarer little by little as more are under way, where more ways make a step.
const (
	contextWays     = 8
	requestWays     = 1
	translationWays = 4
)

// cache says what an adapter has on the chip. It is cut into sets, by a hash of what is looked for, and the oldest of
// a set makes room.
type cache struct {
	keys         []uint64 // by set; 0 is free
	next         []uint8  // of each set: which goes next
	ways         int
	hits, misses uint64
}

// newCache makes one for so many entries; 0 makes one that has everything.
func newCache(entries, ways int) cache {
	if entries == 0 {
		return cache{}
	}
	ways = min(ways, entries)
	sets := entries / ways
	return cache{keys: make([]uint64, sets*ways), next: make([]uint8, sets), ways: ways}
}

// set is where a key lies, and which number its set has.
func (c *cache) set(key uint64) ([]uint64, int) {
	h := key * 0x9E3779B97F4A7C15
	h = (h ^ h>>30) * 0xBF58476D1CE4E5B9
	h = (h ^ h>>27) * 0x94D049BB133111EB
	i := int((h >> 32) * uint64(len(c.next)) >> 32)
	return c.keys[i*c.ways : (i+1)*c.ways], i
}

// has looks for a key and counts what it found.
func (c *cache) has(key uint64) bool {
	if c.keys == nil {
		return true
	}
	set, _ := c.set(key)
	for _, k := range set {
		if k == key+1 {
			c.hits++
			return true
		}
	}
	c.misses++
	return false
}

// put puts a key in that is not there.
func (c *cache) put(key uint64) {
	if c.keys == nil {
		return
	}
	set, i := c.set(key)
	set[c.next[i]] = key + 1
	if c.next[i]++; int(c.next[i]) == c.ways {
		c.next[i] = 0
	}
}

// take looks for a key, and puts it in if it is not there.
func (c *cache) take(key uint64) bool {
	if c.has(key) {
		return true
	}
	c.put(key)
	return false
}
