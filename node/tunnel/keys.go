package tunnel

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/binary"
)

// SecretBytes is how long a secret is.
const SecretBytes = 32

// sealBytes is what sealing adds to a datagram.
const sealBytes = 16

// key is the key of an epoch, with what the next one is made from.
type key struct {
	secret [SecretBytes]byte
	aead   cipher.AEAD
	iv     [12]byte
}

// newKey is the key of a secret.
func newKey(secret [SecretBytes]byte) *key {
	k := &key{secret: secret}
	block, err := aes.NewCipher(expand(secret, "softib tunnel key", 32))
	if err == nil {
		k.aead, err = cipher.NewGCM(block)
	}
	if err != nil {
		panic(err) // of a key of 32 bytes: a bug
	}
	copy(k.iv[:], expand(secret, "softib tunnel iv", len(k.iv)))
	return k
}

// next is the key of the next epoch. Secrets go one way: who learns one learns none of those before.
func (k *key) next() *key {
	return newKey([SecretBytes]byte(expand(k.secret, "softib tunnel next", SecretBytes)))
}

// nonce writes the nonce of a datagram's number: different from session to session even where numbers are the same
// (RFC 9001 section 5.3).
func (k *key) nonce(n *[12]byte, number uint64) {
	*n = k.iv
	binary.BigEndian.PutUint64(n[4:], binary.BigEndian.Uint64(n[4:])^number)
}

func expand(secret [SecretBytes]byte, label string, n int) []byte {
	b, err := hkdf.Expand(sha256.New, secret[:], label, n)
	if err != nil {
		panic(err) // of a length that is too large: a bug
	}
	return b
}
