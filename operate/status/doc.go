// Package status is a running fabric at a glance, as a value: links that are down or slower than they could be,
// addresses and partitions, subnet managers of any make, routing and the last sweep, programs. It is what softib status
// shows, and what its --json prints.
//
// Gather reads links, addresses, partitions and managers from the nodes themselves, through an interface that a fabric
// fills, and adds what subnet managers of this process know. It prints nothing.
package status
