package rdmacm

import (
	"encoding/binary"
	"syscall"

	"softib/proto/mad"
)

// pathFlags is IB_PATH_GMP | IB_PATH_PRIMARY | IB_PATH_BIDIRECTIONAL: a path for everything.
const pathFlags = 1 | 1<<1 | 1<<3 | 1<<5

// queryRoute writes struct rdma_ucm_query_route_resp.
func (d *ident) queryRoute() ([]byte, error) {
	b := make([]byte, routeRespSize)
	if d.src.family != afIB {
		d.src.put(b[136:])
	}
	if d.dst.family != afIB {
		d.dst.put(b[164:])
	}
	if d.port == nil {
		return b, nil
	}
	binary.BigEndian.PutUint64(b, uint64(d.port.guid))
	b[196] = byte(d.port.shown)
	if d.hasPath {
		native.PutUint32(b[192:], 1)
		putUserPath(b[8:], &d.path)
	} else {
		p := b[8 : 8+userPathSize]
		copy(p, d.dgid[:])
		copy(p[16:], d.gid[:])
		binary.BigEndian.PutUint16(p[52:], uint16(d.key))
	}
	return b, nil
}

// putUserPath writes struct ib_user_path_rec.
func putUserPath(b []byte, r *mad.PathRecord) {
	be := binary.BigEndian
	copy(b, r.DGID[:])
	copy(b[16:], r.SGID[:])
	be.PutUint16(b[32:], uint16(r.DLID))
	be.PutUint16(b[34:], uint16(r.SLID))
	native.PutUint32(b[36:], uint32(flag(r.RawTraffic)))
	be.PutUint32(b[40:], r.FlowLabel)
	native.PutUint32(b[44:], uint32(flag(r.Reversible)))
	native.PutUint32(b[48:], uint32(r.MTU))
	be.PutUint16(b[52:], uint16(r.PKey))
	b[54], b[55], b[56], b[57] = r.HopLimit, r.TClass, r.NumbPath, byte(r.SL)
	b[58], b[59], b[60] = byte(r.MTUSelector), byte(r.RateSelector), byte(r.Rate)
	b[61], b[62], b[63] = byte(r.PacketLifeTimeSelector), r.PacketLifeTime, r.Preference
}

// query answers QUERY: addresses, paths, or GIDs as addresses.
func (d *ident) query(option uint32, room int) ([]byte, error) {
	switch option {
	case queryAddr:
		return d.queryAddrs(&d.src, &d.dst)
	case queryGID:
		src, dst := d.src, d.dst
		if src.family != afIB {
			src = sockaddr{family: afIB, pkey: d.key, gid: d.gid, sid: serviceID(d.space, &d.src)}
		}
		if dst.family != afIB {
			dst = sockaddr{family: afIB, pkey: d.key, gid: d.dgid, sid: serviceID(d.space, &d.dst)}
		}
		return d.queryAddrs(&src, &dst)
	case queryPath:
		b := make([]byte, pathRespHead)
		if d.hasPath {
			native.PutUint32(b, 1)
			if room >= pathRespHead+pathDataSize {
				b = append(native.AppendUint32(b, pathFlags), 0, 0, 0, 0)
				b = d.path.Append(b)
			}
		}
		return b, nil
	}
	return nil, syscall.ENOSYS
}

// queryAddrs writes struct rdma_ucm_query_addr_resp.
func (d *ident) queryAddrs(src, dst *sockaddr) ([]byte, error) {
	b := make([]byte, addrRespSize)
	native.PutUint16(b[12:], uint16(src.put(b[16:])))
	native.PutUint16(b[14:], uint16(dst.put(b[16+sockaddrAny:])))
	if d.port == nil {
		return b, nil
	}
	binary.BigEndian.PutUint64(b, uint64(d.port.guid))
	b[8] = byte(d.port.shown)
	binary.BigEndian.PutUint16(b[10:], uint16(d.key))
	return b, nil
}

// queryRoom is the room that an answer to QUERY needs at least.
func queryRoom(option uint32) int {
	if option == queryPath {
		return pathRespHead
	}
	return addrRespSize - 8 // ibdev_index came later
}
