package sm

import "softib/policy"

// QoS is how the lanes of links are shared out, and which paths get which service level.
type QoS struct {
	// Enabled makes the manager write mappings and arbitration. Without it service levels are routing's alone.
	Enabled bool
	// Ports are the tables of each kind of port.
	Ports [policy.NumPortKind]policy.PortQoS
	// Policy has levels and rules for paths; nil if there are none.
	Policy *policy.QoSPolicy
}
