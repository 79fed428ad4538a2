package hca

// Pager stands for the page tables of memory that was registered without being there (on-demand paging).
//
// tidy: calls out, the kernel has the pages and takes them away unasked
type Pager interface {
	// Fetch makes the pages of mem present, for writing or for reading. It is false if some cannot be, because nothing
	// is mapped there or not with this right; then mem must not be touched.
	Fetch(mem []byte, write bool) bool
}

// fetch reports whether mem, which is the region's, can be touched.
func (r *region) fetch(mem []byte, write bool) bool {
	return r.pager == nil || len(mem) == 0 || r.pager.Fetch(mem, write)
}

// AdviseMR fetches the pages that a list names, of regions on demand in domain pd: ibv_advise_mr. With no fault nothing
// is fetched, and only the list is checked.
func (h *HCA) AdviseMR(pd *PD, list []SGE, write, noFault bool) error {
	const verb = "advise_mr"
	if err := h.checkPD(verb, pd); err != nil {
		return err
	}
	need := Access(0)
	if write {
		need = AccessLocalWrite
	}
	for i := range list {
		r, mem := h.local(pd, &list[i], need)
		if r == nil || r.pager == nil {
			return badAttr(verb, "sg_list", list[i], "memory registered on demand, with this right")
		}
		if !noFault && !r.fetch(mem, write) {
			return attrErr(ErrFault, verb, "sg_list", list[i], "memory that is mapped")
		}
	}
	return nil
}
