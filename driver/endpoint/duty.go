package endpoint

import (
	"time"

	"softib/proto/ib"
)

// Who does an endpoint's work: takes in packets, keeps timers, sends what is due. An adapter of silicon always runs;
// here it is the program that polls, or the attendant (a thread of ours), or nobody until a peer wakes the attendant.
// duty decides, and nothing else does. It knows no time and no memory: it is told what happened, says what is so now,
// and its driver (attend.go) does what follows. Everything that is a number of looks or polls is in one table, the
// C code's thresholds too, which reach it by the hint.

// Post is who is on duty, as the attendant has it.
type Post uint8

// Posts.
const (
	// Asleep: nobody looks. The bell says so, and who sends wakes the attendant.
	Asleep Post = iota
	// Dozing is Asleep for a moment. Rings are written without fences, so a sender may have found somebody on duty
	// while we found its packet missing; that is over long before the doze is. The same holds for credit that comes
	// back.
	Dozing
	// Retiring: the attendant has said that it sleeps, and looks once more.
	Retiring
	// Searching: the attendant looks, and has found nothing for a few turns.
	Searching
	// Working: the attendant takes in packets.
	Working
	// Watching: the program polls. The attendant leaves the work to it, and looks in now and then.
	Watching
	numPosts
)

var postNames = [numPosts]string{"asleep", "dozing", "retiring", "searching", "working", "watching"}

func (p Post) String() string { return postNames[p] }

// sight is what the attendant saw in a turn.
type sight uint8

const (
	sawNothing sight = iota
	sawPackets
	sawPoller // somebody polls who can be trusted to go on
	numSights
)

// nextPost is the table of transitions. From Searching it is Retiring that follows, once that has lasted.
var nextPost = [numPosts][numSights]Post{
	Asleep:    {sawNothing: Asleep, sawPackets: Working, sawPoller: Watching},
	Dozing:    {sawNothing: Asleep, sawPackets: Working, sawPoller: Watching},
	Retiring:  {sawNothing: Dozing, sawPackets: Working, sawPoller: Watching},
	Searching: {sawNothing: Searching, sawPackets: Working, sawPoller: Watching},
	Working:   {sawNothing: Searching, sawPackets: Working, sawPoller: Watching},
	Watching:  {sawNothing: Searching, sawPackets: Working, sawPoller: Watching},
}

// onDuty says of each post whether peers need not wake the attendant. While it searches that is left as it is: the
// program may just have said that it sleeps.
var onDuty = [numPosts]struct{ says, value bool }{
	Asleep: {true, false}, Dozing: {true, false}, Retiring: {true, false}, Working: {true, true},
	Watching: {true, true},
}

// The numbers that decide who looks.
const (
	// searchTurns is how many turns without work the attendant looks before it retires.
	searchTurns = 100
	// localTurns is the same where to sleep and to be woken is a matter of goroutines, not of threads.
	localTurns = 8
	// restPolls is how often a program may poll after it has armed a queue without being taken for one that goes on
	// polling.
	restPolls = 16
	// claimPolls is how many polls in a row find nothing before their program is one that polls in earnest: peers
	// need not wake anybody.
	claimPolls = 4
	// keepEvery is how many empty polls there are between looks at the timers.
	keepEvery = 8
	// Spun is how many empty looks there have to have been at least for a poller to see whether others want its core.
	Spun = 16
	// localSpun is the same within one process, where one poller may look at thousands of endpoints in turn.
	localSpun = 8 * Spun
	// stream is how many packets at once, or turns in a row, make a stream.
	stream = 4
	// LingerLooks is how often one looks who waits in Go for a program that does nothing but poll: for a microsecond or
	// two. LingerGap is how many looks find nothing between packets that do not belong together. LingerNot is how
	// often not to linger where the program seems to wait for something else: a fifth of a millisecond.
	LingerLooks = 500
	LingerGap   = 100
	LingerNot   = 1000
)

// cPolls is what C code that polls goes by; see struct softib_polls.
type cPolls struct {
	idle   uint32 // polls that find nothing before the adapter is asked all the same: some fifty microseconds
	gap    uint32 // polls that find nothing between packets that do not belong together
	reap   uint32 // polls that find something before the adapter is asked to take in what came besides
	tight  uint32 // so many polls, a power of two,
	ticks  uint32 // within so many ticks of the processor's clock are a program that does nothing else
	linger uint32 // how many polls the adapter's lingering stands for
	doze   uint32 // nanoseconds that the first sleep of who waits for an event lasts, and each of who polls
	shared uint32 // ticks after which a yield returns if another thread had the core
	crowd  uint32 // how many polls yield at once after that
	kept   uint32 // ticks after which two yields in a row return beside threads that keep the core for a slice
	nap    uint32 // ticks for which pollers sleep after that, instead of yielding
	batch  uint32 // so many requests are worth a call, and those behind as many others are left for who takes those in
}

var inC = cPolls{idle: 2048, gap: 64, reap: 32, tight: 8, ticks: 800, linger: 15 * 8,
	doze: uint32(Doze / ib.Nanosecond), shared: 2400, crowd: 16, kept: 400_000, nap: 1 << 26,
	batch: 16}

const (
	// lookIn is how often the attendant looks whether a poller still polls. Peers knock if it matters sooner.
	lookIn = ib.Millisecond
	// Doze is how long the first sleep is, also of who sleeps in Await.
	Doze = ib.Millisecond
	// knockAfter is how long a packet may lie in a ring before its sender knocks, knockAgain when it does so again.
	knockAfter = 20 * ib.Microsecond
	knockAgain = 200 * ib.Microsecond
	// crowdedAfter is how long somebody else runs, when a poller yields, for the machine to be short of cores.
	crowdedAfter = 100 * time.Microsecond
)

// duty is the engine. One caller at a time: whoever has the endpoint's lock.
type duty struct {
	post   Post
	search int    // turns that find nothing before it retires
	turns  int    // that did
	seen   uint32 // how often the program had looked by the attendant's last turn
	restAt uint32 // or when it was last about to sleep
	rests  bool   // it has not polled in earnest since
	waits  bool   // it has waited in Await since the attendant's last turn
	idle   int    // empty polls in a row
}

// newDuty is that of an endpoint for which nothing has happened yet, whose attendant searches for so many turns.
func newDuty(search int) duty { return duty{post: Searching, search: search, turns: search} }

// turn is told what the attendant found in a turn, how often the program has looked so far, whether peers take somebody
// to be on duty, and whether that has changed since the last turn, be it back and forth. It says what the attendant is
// from now on.
func (d *duty) turn(found int, looked uint32, attended, changed bool) Post {
	switch {
	case d.post > Retiring:
	case attended: // it was woken
		d.post, d.turns = Searching, 0
	case changed: // and somebody has said since that nobody looks: that is as new as if the attendant had said it
		d.post = Retiring
	}
	saw := sawNothing
	switch {
	case d.polledSince(looked):
		saw = sawPoller
	case found > 0:
		saw = sawPackets
	}
	to := nextPost[d.post][saw]
	if to != Searching {
		d.turns = 0
	} else if d.turns++; d.turns > d.search {
		to, d.turns = Retiring, 0
	}
	d.post = to
	return to
}

// hurry is told that others want the attendant's core: it has searched for long enough.
func (d *duty) hurry() { d.turns = d.search }

// polledSince reports whether the program has polled since the last turn and can be trusted to go on.
func (d *duty) polledSince(looked uint32) bool {
	polled, waits := looked != d.seen, d.waits
	d.seen, d.waits = looked, false
	return polled && (waits || !(d.rests && looked-d.restAt < restPolls))
}

// rest is told that the program, which has looked so often, is about to sleep.
func (d *duty) rest(looked uint32) { d.rests, d.restAt, d.idle = true, looked, 0 }

// busy is told of a poll that found packets.
func (d *duty) busy() { d.idle = 0 }

// chores are what a program does that polls in vain.
type chores struct {
	claims bool // say that somebody is on duty
	keeps  bool // keep the timers
	yields bool // see whether others want the core
}

// empty is told of so many polls that found nothing.
func (d *duty) empty(polls int) chores {
	was := d.idle
	d.idle += polls
	c := chores{yields: d.idle/Spun != was/Spun}
	if d.idle >= claimPolls {
		d.rests = false
		c.claims, c.keeps = true, d.idle/keepEvery != was/keepEvery
	}
	return c
}

// sleep is for how long the attendant may do nothing at its post, where next is when something is due at the latest
// and parked says that queue pairs wait for room at a peer.
func (d *duty) sleep(next ib.Time, parked bool) ib.Time {
	switch d.post {
	case Watching:
		return min(lookIn, next)
	case Dozing:
		return min(Doze, next)
	case Asleep:
		if parked {
			return min(Doze, next)
		}
		return next
	}
	return 0
}
