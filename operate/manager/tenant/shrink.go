package tenant

import (
	"context"
	"fmt"

	"softib/proto/ib"
)

// Shrink takes ports out of the tenant of a partition; those that are no members are passed over. If none is left and
// last agrees, the tenant goes too, in the same change, so that nobody's port is lost who came meanwhile. It returns
// the tenant as it was left.
func (b *Book) Shrink(ctx context.Context, key ib.PKey, guids []ib.GUID, last func(Tenant) bool) (Tenant, error) {
	return b.change(ctx, func(s *State) (Change, error) {
		was, ok := s.ByKey(key)
		if !ok {
			return Change{}, fmt.Errorf("tenant: pkey %v: %w", key.Base(), ErrNotFound)
		}
		is := was.Clone()
		is.Drop(guids...)
		if len(is.Members) == 0 && len(was.Members) > 0 && last != nil && last(was) {
			return Change{Was: &was}, nil
		}
		return Change{Was: &was, Is: &is}, nil
	})
}
