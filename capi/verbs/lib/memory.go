package main

// #include "../clib/exports.h"
import "C"

import (
	"encoding/binary"
	"unsafe"

	"softib/node/hca"
	"softib/proto/ib"
)

// be64 is v as C has it in network order.
func be64(v uint64) C.__be64 {
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], v)
	return C.__be64(binary.NativeEndian.Uint64(b[:]))
}

//export softib_alloc_pd
func softib_alloc_pd(context uint32, handle *C.uint32_t) int32 {
	c := table.contexts.get(context)
	if c == nil {
		return einval
	}
	var o object[hca.PD]
	errno := create(c, &table.pds, &o, nil, (*hca.HCA).AllocPD, (*hca.HCA).DeallocPD)
	*handle = C.uint32_t(o.handle)
	return errno
}

//export softib_dealloc_pd
func softib_dealloc_pd(handle uint32) int32 { return destroy(&table.pds, handle, (*hca.HCA).DeallocPD) }

//export softib_reg_mr
func softib_reg_mr(a *C.struct_softib_mr_args) int32 {
	p := table.pds.get(uint32(a.pd))
	if p == nil {
		return einval
	}
	var o object[hca.MR]
	errno := create(p.ctx, &table.mrs, &o, nil, func(h *hca.HCA) (*hca.MR, error) {
		if a.access&C.IBV_ACCESS_ON_DEMAND != 0 {
			return regOnDemand(h, p.it, a)
		}
		mem := unsafe.Slice((*byte)(a.addr), uint64(a.length))
		return h.RegMR(p.it, mem, uint64(a.iova), hca.Access(a.access))
	}, (*hca.HCA).DeregMR)
	if errno == 0 {
		a.handle, a.lkey, a.rkey = C.uint32_t(o.handle), C.uint32_t(o.it.LKey()), C.uint32_t(o.it.RKey())
	}
	return errno
}

//export softib_alloc_null_mr
func softib_alloc_null_mr(a *C.struct_softib_mr_args) int32 {
	p := table.pds.get(uint32(a.pd))
	if p == nil {
		return einval
	}
	var o object[hca.MR]
	errno := create(p.ctx, &table.mrs, &o, nil, func(h *hca.HCA) (*hca.MR, error) {
		return h.AllocNullMR(p.it, unsafe.Slice((*byte)(a.addr), uint64(a.length)))
	}, (*hca.HCA).DeregMR)
	if errno == 0 {
		a.handle, a.lkey = C.uint32_t(o.handle), C.uint32_t(o.it.LKey())
	}
	return errno
}

//export softib_rereg_mr
func softib_rereg_mr(a *C.struct_softib_mr_args) int32 {
	var pd *hca.PD
	var mem []byte
	var access *hca.Access
	if a.flags&C.IBV_REREG_MR_CHANGE_PD != 0 {
		m := table.mrs.get(uint32(a.handle))
		if m == nil {
			return einval
		}
		if pd, _ = among(m.ctx, &table.pds, a.pd); pd == nil {
			return einval
		}
	}
	if a.flags&C.IBV_REREG_MR_CHANGE_TRANSLATION != 0 {
		mem = unsafe.Slice((*byte)(a.addr), uint64(a.length))
	}
	if a.flags&C.IBV_REREG_MR_CHANGE_ACCESS != 0 {
		v := hca.Access(a.access &^ C.IBV_ACCESS_ON_DEMAND) // which stays as it was
		access = &v
	}
	return use(&table.mrs, uint32(a.handle), func(h *hca.HCA, o *object[hca.MR]) error {
		err := h.ReregMR(o.it, pd, mem, uint64(a.iova), access)
		a.lkey, a.rkey = C.uint32_t(o.it.LKey()), C.uint32_t(o.it.RKey())
		return err
	})
}

//export softib_find_pd
func softib_find_pd(context, handle uint32) int32 {
	if c := table.contexts.get(context); c != nil {
		if pd, _ := among(c, &table.pds, C.uint32_t(handle)); pd != nil {
			return 0
		}
	}
	return enoent
}

//export softib_find_mr
func softib_find_mr(pd uint32, a *C.struct_softib_mr_args) int32 {
	p := table.pds.get(pd)
	if p == nil {
		return einval
	}
	m, _ := among(p.ctx, &table.mrs, a.handle)
	if m == nil {
		return enoent
	}
	a.lkey, a.rkey, a.length, a.access = C.uint32_t(m.LKey()), C.uint32_t(m.RKey()), C.uint64_t(m.Len()),
		C.uint32_t(m.Access())
	return 0
}

//export softib_dereg_mr
func softib_dereg_mr(handle uint32) int32 { return destroy(&table.mrs, handle, (*hca.HCA).DeregMR) }

// ahAttr is libibverbs' address in the engine's words.
func ahAttr(a *C.struct_ibv_ah_attr) hca.AHAttr {
	return hca.AHAttr{
		DLID: ib.LID(a.dlid), SL: ib.SL(a.sl), SrcPath: uint8(a.src_path_bits), StaticRate: uint8(a.static_rate),
		IsGlobal: a.is_global != 0,
		DGID:     *(*ib.GID)(unsafe.Pointer(&a.grh.dgid)), FlowLabel: uint32(a.grh.flow_label),
		SGIDIndex: uint8(a.grh.sgid_index),
		HopLimit:  uint8(a.grh.hop_limit), TClass: uint8(a.grh.traffic_class), Port: ib.PortNum(a.port_num),
	}
}

// setAHAttr is the way back.
func setAHAttr(a *C.struct_ibv_ah_attr, v *hca.AHAttr) {
	a.dlid, a.sl, a.src_path_bits, a.static_rate, a.port_num = C.uint16_t(v.DLID), C.uint8_t(v.SL),
		C.uint8_t(v.SrcPath), C.uint8_t(v.StaticRate), C.uint8_t(v.Port)
	if v.IsGlobal {
		a.is_global = 1
	}
	*(*ib.GID)(unsafe.Pointer(&a.grh.dgid)) = v.DGID
	a.grh.flow_label, a.grh.sgid_index, a.grh.hop_limit, a.grh.traffic_class = C.uint32_t(v.FlowLabel),
		C.uint8_t(v.SGIDIndex), C.uint8_t(v.HopLimit), C.uint8_t(v.TClass)
}

//export softib_create_ah
func softib_create_ah(pd uint32, attr *C.struct_ibv_ah_attr, handle *C.uint32_t) int32 {
	p := table.pds.get(pd)
	if p == nil || attr.port_num == 0 {
		return einval
	}
	var o object[hca.AH]
	errno := create(p.ctx, &table.ahs, &o, nil, func(h *hca.HCA) (*hca.AH, error) {
		return h.CreateAH(p.it, ahAttr(attr))
	}, (*hca.HCA).DestroyAH)
	*handle = C.uint32_t(o.handle)
	return errno
}

//export softib_destroy_ah
func softib_destroy_ah(handle uint32) int32 { return destroy(&table.ahs, handle, (*hca.HCA).DestroyAH) }

//export softib_alloc_mw
func softib_alloc_mw(pd, kind uint32, mw, rkey *C.uint32_t) int32 {
	p := table.pds.get(pd)
	if p == nil || kind > uint32(hca.MWType2) {
		return einval
	}
	var o object[hca.MW]
	errno := create(p.ctx, &table.mws, &o, nil, func(h *hca.HCA) (*hca.MW, error) {
		return h.AllocMW(p.it, hca.MWType(kind))
	}, (*hca.HCA).DeallocMW)
	if errno == 0 {
		*mw, *rkey = C.uint32_t(o.handle), C.uint32_t(o.it.RKey())
	}
	return errno
}

//export softib_dealloc_mw
func softib_dealloc_mw(mw uint32) int32 { return destroy(&table.mws, mw, (*hca.HCA).DeallocMW) }
