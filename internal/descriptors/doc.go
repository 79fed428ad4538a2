// Package descriptors shares out what descriptors the process of a fabric may have, so that no program, no user and no
// page can take those that the fabric and its operator need.
package descriptors
