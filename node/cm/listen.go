package cm

import "fmt"

// listener takes requests for the service IDs that agree with id where mask has ones.
type listener struct {
	handle   ListenID
	id, mask uint64
}

// listeners finds who listens to a service ID. No two overlap.
type listeners struct {
	byHandle map[ListenID]listener
	exact    map[uint64]ListenID // those with a full mask
	masked   []listener          // the others, in the order they came
	last     ListenID
}

const fullMask = ^uint64(0)

// Listen takes requests for the service IDs that agree with serviceID in the bits of mask; all ones for a single one.
func (p *Port) Listen(serviceID, mask uint64) (ListenID, error) {
	l := &p.listeners
	serviceID &= mask
	if l.overlaps(serviceID, mask) {
		return 0, fmt.Errorf("cm: Listen: service ID 0x%016x, mask 0x%016x: %w: listen to another, or wait "+
			"until its listener ends", serviceID, mask, ErrInUse)
	}
	for l.last++; l.last == 0 || l.byHandle[l.last].handle != 0; l.last++ {
	}
	n := listener{l.last, serviceID, mask}
	l.byHandle[n.handle] = n
	if mask == fullMask {
		l.exact[serviceID] = n.handle
	} else {
		l.masked = append(l.masked, n)
	}
	p.listened()
	return n.handle, nil
}

// Unlisten ends a listener. Requests that came to it stay.
func (p *Port) Unlisten(id ListenID) error {
	l := &p.listeners
	n, ok := l.byHandle[id]
	if !ok {
		return fmt.Errorf("cm: Unlisten(%d): %w", id, ErrListen)
	}
	delete(l.byHandle, id)
	if n.mask == fullMask {
		delete(l.exact, n.id)
		return nil
	}
	for i := range l.masked {
		if l.masked[i].handle == id {
			l.masked = append(l.masked[:i], l.masked[i+1:]...)
			break
		}
	}
	return nil
}

// Listeners is how many there are.
func (p *Port) Listeners() int { return len(p.listeners.byHandle) }

func (l *listeners) find(serviceID uint64) (ListenID, bool) {
	if h, ok := l.exact[serviceID]; ok {
		return h, true
	}
	for _, n := range l.masked {
		if serviceID&n.mask == n.id {
			return n.handle, true
		}
	}
	return 0, false
}

// overlaps reports whether a service ID exists that both this and another listener take.
func (l *listeners) overlaps(id, mask uint64) bool {
	for _, n := range l.masked {
		if (id^n.id)&mask&n.mask == 0 {
			return true
		}
	}
	if mask == fullMask {
		_, ok := l.exact[id]
		return ok
	}
	for other := range l.exact { // tidy: order-free
		if other&mask == id {
			return true
		}
	}
	return false
}
