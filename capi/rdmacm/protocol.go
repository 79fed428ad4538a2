package rdmacm

import (
	"encoding/binary"
	"errors"
	"fmt"
)

var native = binary.NativeEndian

// The hello that begins every connection:
//
//	struct softib_rdmacm_hello {
//		uint32_t magic;     // 'srcm'
//		uint32_t version;   // 2
//		uint32_t role;      // 1: commands, 2: events
//		uint32_t pad;
//		uint64_t channel;   // 0 makes one (commands only); else the one to join
//		char     host[256]; // with its final zero
//	};
//
// and its answer, with words for the user after it if status is not 0:
//
//	struct softib_rdmacm_welcome {
//		int32_t  status;    // 0 or -errno
//		uint32_t pad;
//		uint64_t channel;
//	};
//
// The hello of an event connection carries, as SCM_RIGHTS, one descriptor: the very socket that it is sent on.
const (
	protocolMagic   = 0x7372636D // 'srcm'
	protocolVersion = 2

	helloSize   = 280
	welcomeSize = 16
	hostMax     = 256 // with its final zero
	textMax     = 512
)

// HostMax is how long the name by which a program is let in may be.
const HostMax = hostMax - 1

type role uint32

const (
	roleCommands role = 1
	roleEvents   role = 2
)

// Sizes of what the kernel's header lays out.
const (
	cmdHeadSize    = 8   // struct rdma_ucm_cmd_hdr
	answerHeadSize = 8   // status and padding
	privateMax     = 256 // RDMA_MAX_PRIVATE_DATA
	sockaddrIn     = 16  // struct sockaddr_in
	sockaddrIn6    = 28  // struct sockaddr_in6
	sockaddrIB     = 48  // struct sockaddr_ib
	sockaddrAny    = 128 // struct __kernel_sockaddr_storage
	connParamSize  = 272 // struct rdma_ucm_conn_param
	udParamSize    = 304 // struct rdma_ucm_ud_param
	ahAttrSize     = 32  // struct ib_uverbs_ah_attr
	qpAttrSize     = 144 // struct ib_uverbs_qp_attr
	userPathSize   = 64  // struct ib_user_path_rec
	pathDataSize   = 72  // struct ib_path_rec_data
	eventSize      = 336 // struct rdma_ucm_event_resp
	routeRespSize  = 208 // struct rdma_ucm_query_route_resp
	addrRespSize   = 280 // struct rdma_ucm_query_addr_resp
	pathRespHead   = 8   // struct rdma_ucm_query_path_resp, without paths
	optionMax      = 4 * pathDataSize
	recordMax      = 1024 // more than any command takes
)

// command is one of enum rdma_ucm_cmd.
type command uint32

const (
	cmdCreateID command = iota
	cmdDestroyID
	cmdBindIP
	cmdResolveIP
	cmdResolveRoute
	cmdQueryRoute
	cmdConnect
	cmdListen
	cmdAccept
	cmdReject
	cmdDisconnect
	cmdInitQPAttr
	cmdGetEvent
	cmdGetOption
	cmdSetOption
	cmdNotify
	cmdJoinIPMcast
	cmdLeaveMcast
	cmdMigrateID
	cmdQuery
	cmdBind
	cmdResolveAddr
	cmdJoinMcast
	numCommand
)

// commands says of each how long its struct is, how much of it must be there (older libraries leave off what later ones
// appended), and how much room its response needs; size 0 is a command that does not exist here.
var commands = [numCommand]struct {
	name             string
	size, need, resp int
}{
	cmdCreateID:     {"CREATE_ID", 24, 24, 4},
	cmdDestroyID:    {"DESTROY_ID", 16, 16, 4},
	cmdBindIP:       {"BIND_IP", 40, 40, 0},
	cmdResolveIP:    {"RESOLVE_IP", 64, 64, 0},
	cmdResolveRoute: {"RESOLVE_ROUTE", 8, 8, 0},
	cmdQueryRoute:   {"QUERY_ROUTE", 16, 16, 200}, // all but ibdev_index, which came later
	cmdConnect:      {"CONNECT", 288, 280, 0},     // all but ece
	cmdListen:       {"LISTEN", 8, 8, 0},
	cmdAccept:       {"ACCEPT", 296, 288, 0}, // all but ece
	cmdReject:       {"REJECT", 264, 264, 0},
	cmdDisconnect:   {"DISCONNECT", 4, 4, 0},
	cmdInitQPAttr:   {"INIT_QP_ATTR", 16, 16, qpAttrSize},
	cmdGetEvent:     {name: "GET_EVENT"},
	cmdGetOption:    {name: "GET_OPTION"},
	cmdSetOption:    {"SET_OPTION", 24, 24, 0}, // and the value
	cmdNotify:       {"NOTIFY", 8, 8, 0},
	cmdJoinIPMcast:  {"JOIN_IP_MCAST", 48, 48, 4},
	cmdLeaveMcast:   {"LEAVE_MCAST", 16, 16, 4},
	cmdMigrateID:    {"MIGRATE_ID", 16, 16, 4},
	cmdQuery:        {"QUERY", 16, 16, 0}, // each option has its own response
	cmdBind:         {"BIND", 136, 136, 0},
	cmdResolveAddr:  {"RESOLVE_ADDR", 272, 272, 0},
	cmdJoinMcast:    {"JOIN_MCAST", 152, 152, 4},
}

func (c command) String() string {
	if c < numCommand {
		return commands[c].name
	}
	return fmt.Sprintf("command(%d)", uint32(c))
}

// What QUERY asks for.
const (
	queryAddr = 0
	queryPath = 1
	queryGID  = 2
)

// Options of SET_OPTION.
const (
	levelID = 0
	levelIB = 1

	optTOS        = 0
	optReuseAddr  = 1
	optAFOnly     = 2
	optAckTimeout = 3

	optPath = 1
)

// Reasons why bytes are no record of the protocol, for errors.Is.
var (
	errNotHello   = errors.New("not a hello")
	errVersion    = errors.New("another version of the protocol")
	errNotCommand = errors.New("not a command")
)

// hello is struct softib_rdmacm_hello.
type hello struct {
	role    role
	channel uint64
	host    string
}

// parseHello reads a hello. Of another version it reads nothing but that.
func parseHello(b []byte) (h hello, err error) {
	if len(b) < 8 || native.Uint32(b) != protocolMagic {
		return h, fmt.Errorf("rdmacm: %w: %d bytes, want the magic 0x%08x first", errNotHello, len(b), protocolMagic)
	}
	if v := native.Uint32(b[4:]); v != protocolVersion {
		return h, fmt.Errorf("rdmacm: %w: the library speaks version %d, this fabric %d; next: restart the "+
			"fabric with the softib that started the program",
			errVersion, v, protocolVersion)
	}
	if len(b) != helloSize {
		return h, fmt.Errorf("rdmacm: %w: %d bytes, want %d", errNotHello, len(b), helloSize)
	}
	h.role = role(native.Uint32(b[8:]))
	if h.role != roleCommands && h.role != roleEvents {
		return h, fmt.Errorf("rdmacm: %w: role %d, want %d for commands or %d for events", errNotHello, h.role,
			roleCommands, roleEvents)
	}
	h.channel = native.Uint64(b[16:])
	host := b[24 : 24+hostMax]
	for i, c := range host {
		if c == 0 {
			h.host = string(host[:i])
			return h, nil
		}
	}
	return h, fmt.Errorf("rdmacm: %w: the host's name does not end within %d bytes", errNotHello, hostMax)
}

func appendHello(b []byte, h *hello) []byte {
	at := len(b)
	b = append(b, make([]byte, helloSize)...)
	p := b[at:]
	native.PutUint32(p, protocolMagic)
	native.PutUint32(p[4:], protocolVersion)
	native.PutUint32(p[8:], uint32(h.role))
	native.PutUint64(p[16:], h.channel)
	copy(p[24:24+hostMax-1], h.host)
	return b
}

// appendWelcome answers a hello; text is for the user, where the status is not 0.
func appendWelcome(b []byte, status int32, channel uint64, text string) []byte {
	b = native.AppendUint32(b, uint32(status))
	b = native.AppendUint32(b, 0)
	b = native.AppendUint64(b, channel)
	return append(b, text[:min(len(text), textMax)]...)
}

// request is a command's record. Body is as long as the command's struct, whatever the library left off being zero, and
// has an option's value after it.
type request struct {
	cmd  command
	room int // for the response
	body []byte
}

// parseRequest reads a record of a command connection. Its body is a copy where it had to be filled up, else part of b.
func parseRequest(b []byte) (r request, err error) {
	if len(b) < cmdHeadSize {
		return r, fmt.Errorf("rdmacm: %w: %d bytes, want a head of %d", errNotCommand, len(b), cmdHeadSize)
	}
	r.cmd, r.room = command(native.Uint32(b)), int(native.Uint16(b[6:]))
	if r.cmd >= numCommand {
		return r, fmt.Errorf("rdmacm: %w: %v, want one below %d", errNotCommand, r.cmd, numCommand)
	}
	r.body = b[cmdHeadSize:]
	c := &commands[r.cmd]
	if len(r.body) < c.need {
		return r, fmt.Errorf("rdmacm: %w: %v of %d bytes, want %d", errNotCommand, r.cmd, len(r.body), c.need)
	}
	if len(r.body) < c.size {
		r.body = append(make([]byte, 0, c.size), r.body...)[:c.size]
	}
	return r, nil
}
