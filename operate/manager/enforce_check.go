package manager

import (
	"context"
	"fmt"

	"softib/proto/ib"
	"softib/proto/mad"
	"softib/subnet/sm"

	"softib/operate/manager/tenant"
)

// Astray asks the nodes of a tenant what they hold, and says what of it is not what was acknowledged: keys that are
// missing, keys of other tenants, switches that do not check. An error says that nothing is in force at all.
func (e *Enforcer) Astray(ctx context.Context, state tenant.State, t *tenant.Tenant) ([]tenant.Refusal, error) {
	if len(e.ks) == 0 {
		return nil, fmt.Errorf("manager: no subnet manager of softib's runs here: %w", tenant.ErrUnmanaged)
	}
	c := concern{ports: map[ib.GUID][]ib.PKey{}}
	c.addMembers(&state, t)
	var all []tenant.Refusal
	for _, k := range e.ks {
		var sc scene
		if err := k.Do(func(m *sm.Manager) {
			sc = scene{state: m.State(), sub: m.Subnet(), self: m.Port(), side: m.Config().Enforce, keys: m.Keys()}
		}); err != nil {
			return nil, fmt.Errorf("manager: %w", err)
		}
		if sc.state != mad.SMMaster || sc.sub == nil {
			return nil, fmt.Errorf("manager: softib's subnet manager is %v: %w", sc.state, tenant.ErrUnmanaged)
		}
		list, err := e.readBack(ctx, sc, c, &state)
		if err != nil {
			return nil, err
		}
		all = append(all, list...)
	}
	return all, nil
}
