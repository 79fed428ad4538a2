package rdmacm

import (
	"fmt"
	"syscall"

	"softib/node/cm"
	"softib/proto/mad"
)

// idsMax bounds the IDs of a channel.
const idsMax = 1 << 18

// command executes one record of a channel and returns the response.
func (s *Server) command(c *channel, record []byte) ([]byte, error) {
	if len(record) > recordMax {
		return nil, fmt.Errorf("rdmacm: %w: more than %d bytes", errNotCommand, recordMax)
	}
	r, err := parseRequest(record)
	if err != nil {
		return nil, err
	}
	if commands[r.cmd].size == 0 {
		return nil, fmt.Errorf("rdmacm: %v: %w", r.cmd, syscall.ENOSYS)
	}
	need := commands[r.cmd].resp
	if r.cmd == cmdQuery {
		need = queryRoom(native.Uint32(r.body[12:]))
	}
	if r.room < need {
		return nil, fmt.Errorf("rdmacm: %v with room for %d bytes of %d: %w", r.cmd, r.room, need, syscall.ENOSPC)
	}
	var from *channel
	if r.cmd == cmdMigrateID {
		if from, err = s.find(native.Uint64(r.body)); err != nil {
			return nil, err
		}
		if from.host != c.host {
			return nil, fmt.Errorf("rdmacm: channels of %s and %s: %w", from.host.name, c.host.name, syscall.EINVAL)
		}
	}
	c.host.mu.Lock()
	defer c.host.mu.Unlock()
	if c.ended {
		return nil, ErrClosed
	}
	var resp []byte
	switch {
	case r.cmd == cmdCreateID:
		resp, err = c.createID(r.body)
	case from != nil:
		resp, err = from.migrate(native.Uint32(r.body[8:]), c)
	default:
		resp, err = c.execute(&r)
	}
	return resp[:min(len(resp), r.room)], err
}

// find is an ID of the channel.
func (c *channel) find(n uint32) (*ident, error) {
	if d := c.ids[n]; d != nil {
		return d, nil
	}
	return nil, fmt.Errorf("rdmacm: ID %d: %w", n, syscall.ENOENT)
}

func (c *channel) createID(b []byte) ([]byte, error) {
	uid, space, qpType := native.Uint64(b), portSpace(native.Uint16(b[16:])), b[18]
	switch space {
	case psTCP:
		qpType = qptRC
	case psUDP, psIPoIB:
		qpType = qptUD
	case psIB:
	default:
		return nil, fmt.Errorf("rdmacm: port space 0x%04x: %w", uint16(space), syscall.EINVAL)
	}
	if len(c.ids) >= idsMax {
		return nil, syscall.ENOMEM
	}
	return native.AppendUint32(nil, c.newIdent(uid, space, qpType).number), nil
}

// migrate moves an ID of the channel to another.
func (c *channel) migrate(n uint32, to *channel) ([]byte, error) {
	d, err := c.find(n)
	if err != nil {
		return nil, err
	}
	d.migrate(to)
	return native.AppendUint32(nil, d.reported), nil
}

// idOffset is where a command's struct names its ID.
var idOffset = [numCommand]int{
	cmdDestroyID: 8, cmdBindIP: 36, cmdResolveIP: 56, cmdQueryRoute: 8, cmdConnect: 272, cmdAccept: 280,
	cmdInitQPAttr: 8, cmdSetOption: 8,
	cmdJoinIPMcast: 44, cmdLeaveMcast: 8, cmdQuery: 8, cmdJoinMcast: 16,
}

// execute does what a command says with an ID of the channel.
func (c *channel) execute(r *request) ([]byte, error) {
	b := r.body
	n := native.Uint32(b[idOffset[r.cmd]:])
	if r.cmd == cmdLeaveMcast {
		return c.leaveGroup(n)
	}
	if err := checkSizes(r); err != nil {
		return nil, err
	}
	d, err := c.find(n)
	if err != nil {
		return nil, err
	}
	switch r.cmd {
	case cmdDestroyID:
		d.destroy()
		c.settle()
		return native.AppendUint32(nil, d.reported), nil
	case cmdBindIP:
		return nil, d.bind(parseSockaddr(b[8:36]))
	case cmdBind:
		return nil, d.bind(parseSockaddr(b[8:]))
	case cmdResolveIP:
		return nil, d.resolveAddr(parseSockaddr(b[:28]), parseSockaddr(b[28:56]))
	case cmdResolveAddr:
		return nil, d.resolveAddr(parseSockaddr(b[16:16+sockaddrAny]), parseSockaddr(b[16+sockaddrAny:]))
	case cmdResolveRoute:
		return nil, d.resolveRoute(native.Uint32(b[4:]))
	case cmdQueryRoute:
		return d.queryRoute()
	case cmdQuery:
		return d.query(native.Uint32(b[12:]), r.room)
	case cmdConnect:
		p := parseConnParam(b)
		if p.valid == 0 {
			return nil, d.bad("connecting without parameters")
		}
		p.ece = parseECE(b[connParamSize+8:])
		return nil, d.connect(&p)
	case cmdListen:
		return nil, d.listen(int(int32(native.Uint32(b[4:]))))
	case cmdAccept:
		p := parseConnParam(b[8:])
		p.ece = parseECE(b[8+connParamSize+8:])
		return nil, d.accept(&p, native.Uint64(b))
	case cmdReject:
		return nil, d.reject(mad.CMReason(b[5]), b[8:8+int(b[4])])
	case cmdDisconnect:
		return nil, d.disconnect()
	case cmdInitQPAttr:
		a, err := d.qpAttr(cm.QPState(native.Uint32(b[12:])))
		if err != nil {
			return nil, err
		}
		return appendQPAttr(nil, &a, d.qkey), nil
	case cmdSetOption:
		return nil, d.setOption(b)
	case cmdNotify:
		return nil, d.notify(native.Uint32(b[4:]))
	case cmdJoinIPMcast:
		return c.joinGroup(d, native.Uint64(b[8:]), parseSockaddr(b[16:44]), 0)
	case cmdJoinMcast:
		return c.joinGroup(d, native.Uint64(b[8:]), parseSockaddr(b[24:]), native.Uint16(b[22:]))
	}
	return nil, syscall.ENOSYS
}

// checkSizes compares the sizes of addresses that a command gives with their families, and looks at what must be 0.
func checkSizes(r *request) error {
	b, ok := r.body, true
	size := func(at, off int) bool { return int(native.Uint16(b[at:])) == sockaddrSize(native.Uint16(b[off:])) }
	switch r.cmd {
	case cmdBind:
		ok = native.Uint16(b[6:]) == 0 && native.Uint16(b[4:]) != 0 && size(4, 8)
	case cmdResolveAddr:
		src, dst := native.Uint16(b[8:]), native.Uint16(b[10:])
		ok = native.Uint32(b[12:]) == 0 && (src == 0 || size(8, 16)) && dst != 0 && size(10, 16+sockaddrAny)
	case cmdJoinMcast:
		ok = native.Uint16(b[20:]) != 0 && size(20, 24)
	}
	if !ok {
		return fmt.Errorf("rdmacm: %v: sizes of addresses: %w", r.cmd, syscall.EINVAL)
	}
	return nil
}

// Flags of JOIN_MCAST.
const (
	joinFull     = 0
	joinSendOnly = 1
)

func (c *channel) joinGroup(d *ident, uid uint64, a sockaddr, flags uint16) ([]byte, error) {
	as := mad.JoinFull
	switch flags {
	case joinFull:
	case joinSendOnly:
		as = mad.JoinSendOnlyFull
	default:
		return nil, fmt.Errorf("rdmacm: joining with flags %d: %w", flags, syscall.EINVAL)
	}
	if a.family == afNone {
		return nil, syscall.EINVAL
	}
	if len(c.groups) >= idsMax {
		return nil, syscall.ENOMEM
	}
	m, err := d.join(uid, a, as)
	if err != nil {
		return nil, err
	}
	return native.AppendUint32(nil, m.number), nil
}

func (c *channel) leaveGroup(n uint32) ([]byte, error) {
	m := c.groups[n]
	if m == nil {
		return nil, fmt.Errorf("rdmacm: membership %d: %w", n, syscall.ENOENT)
	}
	m.leave()
	c.settle()
	return native.AppendUint32(nil, m.reported), nil
}

// setOption sets one of the options of an ID.
func (d *ident) setOption(b []byte) error {
	level, name, length := native.Uint32(b[12:]), native.Uint32(b[16:]), native.Uint32(b[20:])
	value := b[24:]
	if uint64(length) > uint64(len(value)) || length > optionMax {
		return fmt.Errorf("rdmacm: an option of %d bytes, of which %d are here: %w", length, len(value), syscall.EINVAL)
	}
	value = value[:length]
	number := func() bool { return native.Uint32(value) != 0 }
	switch {
	case level == levelIB && name == optPath:
		return d.setPath(value)
	case level != levelID || name > optAckTimeout:
		return syscall.ENOSYS
	case (name == optTOS || name == optAckTimeout) != (length == 1) || length != 1 && length != 4:
		return syscall.EINVAL
	}
	switch name {
	case optTOS:
		d.tos, d.tosSet = value[0], true
	case optReuseAddr:
		if !number() && d.state != stIdle {
			return d.bad("setting an option")
		}
		d.reuse = number()
	case optAFOnly:
		if d.state != stIdle && d.state != stAddrBound {
			return d.bad("setting an option")
		}
		d.afOnly, d.afOnlySet = number(), true
	case optAckTimeout:
		if value[0] == 0 || value[0] > 31 || d.qpType != qptRC && d.qpType != qptXRCSend {
			return syscall.EINVAL
		}
		d.ackTimeout = value[0]
	}
	return nil
}

// setPath gives the ID a path that the program knows, instead of one of the administrator's.
func (d *ident) setPath(b []byte) error {
	for ; len(b) >= pathDataSize; b = b[pathDataSize:] {
		if native.Uint32(b) != pathFlags {
			continue
		}
		if d.state != stAddrResolved {
			return d.bad("setting a path")
		}
		var r mad.PathRecord
		if _, err := r.Parse(b[8:]); err != nil || !r.DLID.IsUnicast() {
			return syscall.EINVAL
		}
		d.path, d.hasPath = r, true
		d.state = stRouteResolved
		d.tell(evtRouteResolved, 0)
		return nil
	}
	return syscall.EINVAL
}
