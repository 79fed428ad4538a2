package main

// #include "../clib/exports.h"
import "C"

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"unsafe"

	"softib/driver/roce"
	"softib/node/hca"
	"softib/proto/ib"
	"softib/verbs/attach"
)

// opened are the process's devices on which contexts are open.
var opened struct {
	mu  sync.Mutex
	all map[deviceKey]*shared
}

// deviceKey is where a device is: the socket of who has it, and the host or the interface there.
type deviceKey struct{ socket, host string }

// shared is a device and how many contexts are open on it.
type shared struct {
	device
	key      deviceKey
	contexts int
}

//export softib_open
func softib_open(a *C.struct_softib_open_args) int32 {
	opened.mu.Lock()
	defer opened.mu.Unlock()
	key := deviceKey{C.GoString(a.socket), C.GoString(a.host)}
	d := opened.all[key]
	if d == nil {
		dev, err := open(key.socket, key.host)
		if err != nil {
			setText(a.error[:], err.Error())
			if errors.Is(err, attach.ErrRefused) {
				return eacces
			}
			return enodev
		}
		d = &shared{device: dev, key: key}
		if opened.all == nil {
			opened.all = map[deviceKey]*shared{}
		}
		opened.all[key] = d
		dev.NotifyEvents(func(e hca.Event) { deliver(d, e) })
		dev.Stage(postStaged, postSends)
	}
	c := &contextObj{dev: d.device, shared: d, events: &pipe{fd: int(a.async_fd)}}
	c.handle = table.contexts.put(c)
	if c.handle == 0 {
		c.events.end()
		d.leave()
		setText(a.error[:], fmt.Sprintf("verbs: more than %d open contexts; next: close some", slotChunk*slotChunks))
		return enomem
	}
	d.contexts++
	a.handle = C.uint32_t(c.handle)
	a.hint = (*C.struct_softib_hint)(d.Hint())
	return 0
}

// leave closes a device that no context is open on. The list is locked.
func (d *shared) leave() {
	if d.contexts == 0 {
		d.Close()
		delete(opened.all, d.key)
	}
}

// open attaches to a fabric, or takes part in what holds an interface of this machine, whose socket has roce: in front.
func open(socket, host string) (device, error) {
	if path, isEthernet := strings.CutPrefix(socket, "roce:"); isEthernet {
		return roce.Dial(path, host, func(line string) { fmt.Fprintf(os.Stderr, "softib: %s: %s\n", host, line) })
	}
	d, err := attach.Open(attach.Options{Socket: socket, Host: host})
	if err != nil {
		return nil, err
	}
	return d.Driver().(device), nil
}

// setText fills a C array with a string that ends in 0.
func setText(to []C.char, s string) {
	n := min(len(s), len(to)-1)
	for i := 0; i < n; i++ {
		to[i] = C.char(s[i])
	}
	to[n] = 0
}

//export softib_close
func softib_close(context uint32) int32 {
	c := table.contexts.get(context)
	if c == nil {
		return einval
	}
	c.destroyAll()
	c.events.end()
	table.contexts.drop(context)
	opened.mu.Lock()
	defer opened.mu.Unlock()
	c.shared.contexts--
	c.shared.leave()
	return 0
}

//export softib_settle
func softib_settle() int32 {
	// Whoever opens or closes a device at this moment has other worries.
	if opened.mu.TryLock() {
		for _, d := range opened.all {
			d.TakeIn(true)
		}
		opened.mu.Unlock()
	}
	return 0
}

// destroyAll ends what a program left behind, what uses others first.
func (c *contextObj) destroyAll() {
	table.qps.all(func(h uint32, o *qpObj) {
		if o.ctx == c {
			o.leaveGroups()
			softib_destroy_qp(h)
		}
	})
	destroyOf(c, &table.srqs, softib_destroy_srq)
	destroyOf(c, &table.mws, softib_dealloc_mw)
	destroyOf(c, &table.mrs, softib_dereg_mr)
	destroyOf(c, &table.ahs, softib_destroy_ah)
	destroyOf(c, &table.cqs, softib_destroy_cq)
	destroyOf(c, &table.xrcds, softib_close_xrcd)
	destroyOf(c, &table.pds, softib_dealloc_pd)
}

// deliver writes an event of a device's engine to whom it concerns. The device is locked.
func deliver(d *shared, e hca.Event) {
	var of any
	var kind uint32
	switch {
	case e.Type == hca.EventCompletion:
		return
	case e.QP != nil:
		of, kind = e.QP, C.SOFTIB_QP
	case e.SRQ != nil:
		of, kind = e.SRQ, C.SOFTIB_SRQ
	case e.CQ != nil:
		of, kind = e.CQ, C.SOFTIB_CQ
	default:
		table.contexts.all(func(_ uint32, c *contextObj) {
			if c.shared == d {
				c.events.put(event{uint32(e.Type), C.SOFTIB_NO_OBJECT, uint32(e.Port), 0})
			}
		})
		return
	}
	table.mu.Lock()
	defer table.mu.Unlock()
	for _, o := range table.tracked[of] {
		o.ctx.events.put(event{uint32(e.Type), kind, o.handle, o.serial})
	}
}

//export softib_flush_events
func softib_flush_events(fd int32) int32 {
	flushPipe(int(fd))
	return 0
}

// What the adapter is, besides its limits.
const (
	pageSizes = ^uint64(0xFFF) // any from 4 KiB on
	// What hca has of libibverbs' list.
	capFlags = C.IBV_DEVICE_BAD_PKEY_CNTR | C.IBV_DEVICE_BAD_QKEY_CNTR | C.IBV_DEVICE_AUTO_PATH_MIG |
		C.IBV_DEVICE_CHANGE_PHY_PORT | C.IBV_DEVICE_CURR_QP_STATE_MOD | C.IBV_DEVICE_PORT_ACTIVE_EVENT |
		C.IBV_DEVICE_SYS_IMAGE_GUID | C.IBV_DEVICE_RC_RNR_NAK_GEN | C.IBV_DEVICE_MEM_WINDOW | C.IBV_DEVICE_XRC |
		C.IBV_DEVICE_MEM_WINDOW_TYPE_2B | C.IBV_DEVICE_SRQ_RESIZE | C.IBV_DEVICE_RESIZE_MAX_WR
)

//export softib_query_device
func softib_query_device(context uint32, a *C.struct_ibv_device_attr) int32 {
	c := table.contexts.get(context)
	if c == nil {
		return einval
	}
	ad, l := c.dev.Adapter(), c.dev.Enter().Limits()
	c.dev.LeaveQuiet()
	*a = C.struct_ibv_device_attr{
		node_guid: be64(uint64(ad.NodeGUID)), sys_image_guid: be64(uint64(ad.SystemGUID)),
		vendor_id: C.uint32_t(ad.VendorID), vendor_part_id: C.uint32_t(ad.DeviceID),
		max_mr: C.int(l.MaxMR), max_mr_size: C.uint64_t(l.MaxMRSize), page_size_cap: C.uint64_t(pageSizes),
		max_qp: C.int(l.MaxQP), max_qp_wr: C.int(l.MaxQPWR), max_sge: C.int(l.MaxSGE), max_sge_rd: C.int(l.MaxSGE),
		max_cq: C.int(l.MaxCQ), max_cqe: C.int(l.MaxCQE), max_pd: C.int(l.MaxPD), max_mw: C.int(l.MaxMW),
		max_ah: C.int(l.MaxAH), max_srq: C.int(l.MaxSRQ), max_srq_wr: C.int(l.MaxSRQWR), max_srq_sge: C.int(l.MaxSGE),
		max_qp_rd_atom: C.int(l.MaxRDAtomic), max_qp_init_rd_atom: C.int(l.MaxInitRDAtomic),
		max_res_rd_atom: C.int(min(uint64(l.MaxRDAtomic)*uint64(l.MaxQP), 1<<31-1)),
		max_mcast_grp:   C.int(l.MaxMcastGrp), max_mcast_qp_attach: C.int(l.MaxMcastQPAttach),
		max_total_mcast_qp_attach: C.int(min(uint64(l.MaxMcastGrp)*uint64(l.MaxMcastQPAttach), 1<<31-1)),
		device_cap_flags:          capFlags, max_pkeys: hca.PartitionCap, local_ca_ack_delay: hca.AckDelay,
		phys_port_cnt: C.uint8_t(c.dev.NumPorts()), atomic_cap: C.IBV_ATOMIC_HCA,
	}
	setText(a.fw_ver[:], ad.Firmware)
	return 0
}

// speedBits are ibv_port_attr.active_speed, by generation.
var speedBits = [ib.NumSpeed]uint8{ib.SDR: 1, ib.DDR: 2, ib.QDR: 4, ib.FDR10: 8, ib.FDR: 16, ib.EDR: 32, ib.HDR: 64,
	ib.NDR: 128}

//export softib_query_port
func softib_query_port(context, port uint32, a *C.struct_ibv_port_attr) int32 {
	c := table.contexts.get(context)
	if c == nil || port > 0xFF {
		return einval
	}
	info, ok := c.dev.PortInfo(ib.PortNum(port))
	h := c.dev.Enter()
	defer c.dev.LeaveQuiet()
	p := h.Port(ib.PortNum(port))
	if !ok || p == nil {
		return einval
	}
	pi, rate := &info.Info, info.Info.Rate()
	lid, layer := p.LID, C.uint8_t(C.IBV_LINK_LAYER_INFINIBAND)
	if h.Config().RoCE.ByGID {
		lid, layer = 0, C.IBV_LINK_LAYER_ETHERNET
	}
	*a = C.struct_ibv_port_attr{
		state: C.enum_ibv_port_state(p.State), phys_state: C.uint8_t(pi.PortPhysicalState),
		max_mtu: C.enum_ibv_mtu(pi.MTUCap), active_mtu: C.enum_ibv_mtu(p.MTU), active_width: C.uint8_t(rate.Width),
		max_msg_sz: C.uint32_t(h.Limits().MaxMsgSize), max_vl_num: C.uint8_t(pi.VLCap),
		gid_tbl_len: C.int(pi.GUIDCap), pkey_tbl_len: hca.PartitionCap,
		bad_pkey_cntr: C.uint32_t(p.PKeyViolations), qkey_viol_cntr: C.uint32_t(p.QKeyViolations),
		port_cap_flags: C.uint32_t(pi.CapabilityMask), port_cap_flags2: C.uint16_t(pi.CapabilityMask2),
		lid: C.uint16_t(lid), lmc: C.uint8_t(p.LMC), sm_lid: C.uint16_t(p.SMLID), sm_sl: C.uint8_t(p.SMSL),
		subnet_timeout: C.uint8_t(pi.SubnetTimeOut), init_type_reply: C.uint8_t(pi.InitTypeReply),
		link_layer: layer,
	}
	switch {
	case rate.Speed >= ib.XDR:
		// Does not fit into a byte; programs built for it read another field, older ones get the fastest they know.
		a.active_speed = C.uint8_t(speedBits[ib.NDR])
	case rate.Speed.IsValid():
		a.active_speed = C.uint8_t(speedBits[rate.Speed])
	}
	return 0
}

//export softib_query_gid
func softib_query_gid(context, port uint32, index int32, gid *C.uint8_t) int32 {
	c := table.contexts.get(context)
	if c == nil || port > 0xFF {
		return einval
	}
	info, ok := c.dev.PortInfo(ib.PortNum(port))
	p := c.dev.Enter().Port(ib.PortNum(port))
	defer c.dev.LeaveQuiet()
	if !ok || p == nil || index < 0 || int(index) >= int(info.Info.GUIDCap) {
		return einval
	}
	var g ib.GID
	if int(index) < len(p.GIDs) { // the rest of the table is empty
		g = p.GIDs[index]
	}
	*(*ib.GID)(unsafe.Pointer(gid)) = g
	return 0
}

//export softib_query_pkey
func softib_query_pkey(context, port uint32, index int32, pkey *C.uint16_t) int32 {
	c := table.contexts.get(context)
	if c == nil || port > 0xFF {
		return einval
	}
	p := c.dev.Enter().Port(ib.PortNum(port))
	defer c.dev.LeaveQuiet()
	if p == nil || index < 0 || index >= hca.PartitionCap {
		return einval
	}
	var k ib.PKey
	if int(index) < len(p.PKeys) { // the rest of the table is empty
		k = p.PKeys[index]
	}
	*pkey = C.uint16_t(k)
	return 0
}
