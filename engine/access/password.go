package access

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"unicode/utf8"

	"golang.org/x/crypto/argon2"
	"golang.org/x/text/unicode/norm"
)

// The rules of passwords. Nothing is asked of the letters: length resists
// guessing, and composition rules make people choose alike.
const (
	MinPasswordLetters = 12
	MaxPasswordBytes   = 1024
)

// CheckPassword tells whether a password may be given to the person of this
// name. Error: [*RuleError].
func CheckPassword(name, password string) error {
	switch {
	case len(password) > MaxPasswordBytes:
		return &RuleError{"password", fmt.Sprintf("must be at most %d bytes", MaxPasswordBytes)}
	case !utf8.ValidString(password):
		return &RuleError{"password", "must be text (UTF-8)"}
	case utf8.RuneCountInString(password) < MinPasswordLetters:
		return &RuleError{"password", fmt.Sprintf("must have at least %d characters", MinPasswordLetters)}
	case strings.EqualFold(strings.TrimSpace(password), name):
		return &RuleError{"password", "must not be the name"}
	}
	return nil
}

// parameters are argon2id's: passes, KiB, lanes. They stand in each hash, so that
// they can be raised: a hash with others is made anew when its person signs in.
type parameters struct {
	passes, memory uint32
	lanes          uint8
}

// current are OWASP's for argon2id: 19 MiB and two passes, some 35 ms of one
// processor. More memory would cost guessers more, and so many times Hashing here.
var current = parameters{passes: 2, memory: 19 * 1024, lanes: 1}

const (
	saltBytes = 16
	keyBytes  = 32
)

// hashed is a password's hash with all that is needed to check one.
type hashed struct {
	parameters
	salt, key []byte
}

// derive is argon2id. The same word may be typed as different bytes (é as one
// letter or as two): NFC makes them one.
func (p parameters) derive(password string, salt []byte) []byte {
	return argon2.IDKey([]byte(norm.NFC.String(password)), salt, p.passes, p.memory, p.lanes, keyBytes)
}

func newHash(password string) hashed {
	h := hashed{parameters: current, salt: make([]byte, saltBytes)}
	rand.Read(h.salt) // never fails: it ends the program rather than give less
	h.key = h.derive(password, h.salt)
	return h
}

// nobody's hash is checked when no account has the name, so that the answer takes
// as long. No password is known that fits it.
func nobody() hashed {
	h := hashed{parameters: current, salt: make([]byte, saltBytes), key: make([]byte, keyBytes)}
	rand.Read(h.salt)
	rand.Read(h.key)
	return h
}

func (h hashed) matches(password string) bool {
	return subtle.ConstantTimeCompare(h.derive(password, h.salt), h.key) == 1
}

// String is the PHC form: $argon2id$v=19$m=19456,t=2,p=1$salt$key.
func (h hashed) String() string {
	return fmt.Sprintf("$argon2id$v=%d$m=%d,t=%d,p=%d$%s$%s", argon2.Version, h.memory, h.passes, h.lanes,
		base64.RawStdEncoding.EncodeToString(h.salt), base64.RawStdEncoding.EncodeToString(h.key))
}

var errBadHash = errors.New("stored password hash is not argon2id within its limits")

// parseHash refuses parameters that would take the server's memory or minutes.
func parseHash(s string) (hashed, error) {
	parts := strings.Split(s, "$")
	if len(parts) != 6 || parts[0] != "" || parts[1] != "argon2id" || parts[2] != fmt.Sprintf("v=%d", argon2.Version) {
		return hashed{}, errBadHash
	}
	var h hashed
	if n, err := fmt.Sscanf(parts[3], "m=%d,t=%d,p=%d", &h.memory, &h.passes, &h.lanes); n != 3 || err != nil {
		return hashed{}, errBadHash
	}
	var saltErr, keyErr error
	h.salt, saltErr = base64.RawStdEncoding.DecodeString(parts[4])
	h.key, keyErr = base64.RawStdEncoding.DecodeString(parts[5])
	if saltErr != nil || keyErr != nil || len(h.salt) < 8 || len(h.salt) > 64 || len(h.key) != keyBytes ||
		h.memory < 8 || h.memory > 256*1024 || h.passes < 1 || h.passes > 16 || h.lanes < 1 || h.lanes > 16 {
		return hashed{}, errBadHash
	}
	return h, nil
}

// maxWaiting bounds who waits to have a password hashed: with two at a time the
// last of them waits some 2 s.
const maxWaiting = 128

var errTooManyWait = errors.New("too many wait for a password to be checked")

// hasher bounds how many hashes are made at once, and so their memory.
type hasher struct {
	slots   chan struct{}
	waiting atomic.Int32
}

func newHasher(n int) *hasher { return &hasher{slots: make(chan struct{}, n)} }

// enter waits for a slot; leave gives it back. Errors: errTooManyWait, ctx's.
func (h *hasher) enter(ctx context.Context) (leave func(), err error) {
	if h.waiting.Add(1) > maxWaiting {
		h.waiting.Add(-1)
		return nil, errTooManyWait
	}
	defer h.waiting.Add(-1)
	select {
	case h.slots <- struct{}{}:
		return func() { <-h.slots }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// make hashes a new password.
func (h *hasher) make(ctx context.Context, password string) (string, error) {
	leave, err := h.enter(ctx)
	if err != nil {
		return "", err
	}
	defer leave()
	return newHash(password).String(), nil
}
