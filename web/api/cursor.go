package api

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"github.com/reliable-job-engine/reliable-job-engine/engine"
	"github.com/reliable-job-engine/reliable-job-engine/engine/inspect"
)

// cursor is a place in a list, with a digest of what was listed, so that it is not
// carried to another list or filter.
type cursor struct {
	Of     string              `json:"of"`
	Before engine.ID           `json:"b"`
	At     time.Time           `json:"t,omitzero"`
	N      int64               `json:"n,omitzero"`
	Dead   *inspect.DeadCursor `json:"d,omitempty"`
}

// listed is a short digest of a list and its filter. Limit and place are no part
// of it: they may change from page to page.
func listed(list string, values url.Values) string {
	filter := url.Values{}
	for name, v := range values {
		if name != "limit" && name != "cursor" && name != "page" {
			filter[name] = v
		}
	}
	sum := sha256.Sum256([]byte(list + "?" + filter.Encode()))
	return base64.RawURLEncoding.EncodeToString(sum[:9])
}

// cursors signs places in lists, so that callers get nowhere but where they were
// sent. All servers of an installation have one secret, which is read at its first
// use, and again if a signature does not fit: it may have been changed.
type cursors struct {
	secretOf func(context.Context) ([]byte, error)
	secret   atomic.Pointer[[]byte]

	mu sync.Mutex
	at time.Time // of the last reading
}

const (
	signatureBytes = 16
	// secretEvery bounds what forged cursors cost.
	secretEvery = 5 * time.Second
)

// write makes the text of a cursor.
func (s *cursors) write(ctx context.Context, c cursor) (string, error) {
	place, err := json.Marshal(c)
	if err != nil {
		return "", fmt.Errorf("write cursor: %w", err)
	}
	secret := s.secret.Load()
	if secret == nil {
		if secret, err = s.reread(ctx); err != nil {
			return "", err
		}
	}
	return base64.RawURLEncoding.EncodeToString(append(place, signature(*secret, place)...)), nil
}

func signature(secret, place []byte) []byte {
	h := hmac.New(sha256.New, secret)
	h.Write(place)
	return h.Sum(nil)[:signatureBytes]
}

// read reads the cursor of a list, the zero one if there is none. A bad one is the
// query's flaw; an error is the database's.
func (s *cursors) read(ctx context.Context, q *query, list string) (cursor, error) {
	c := cursor{Of: listed(list, q.values)}
	if !q.values.Has("cursor") {
		return c, nil
	}
	signed, err := base64.RawURLEncoding.Strict().DecodeString(q.values.Get("cursor"))
	var given cursor
	if at := len(signed) - signatureBytes; err == nil && at > 0 {
		fits, err := s.fits(ctx, signed[:at], signed[at:])
		if err != nil {
			return c, err
		}
		if fits && json.Unmarshal(signed[:at], &given) == nil && given.Of == c.Of {
			return given, nil
		}
	}
	if given.Of != "" {
		q.refuse("cursor", "invalid", "it belongs to another list or filter; start without one")
	} else {
		q.refuse("cursor", "invalid", "not a cursor of this server; start without one")
	}
	return c, nil
}

// fits tells whether a place was signed with the secret, as it is by now.
func (s *cursors) fits(ctx context.Context, place, signed []byte) (bool, error) {
	secret := s.secret.Load()
	if secret != nil && hmac.Equal(signature(*secret, place), signed) {
		return true, nil
	}
	fresh, err := s.reread(ctx)
	if err != nil {
		return false, err
	}
	return hmac.Equal(signature(*fresh, place), signed), nil
}

// reread reads the secret from the database, unless that was done a moment ago.
func (s *cursors) reread(ctx context.Context) (*[]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	known := s.secret.Load()
	if known != nil && time.Since(s.at) < secretEvery {
		return known, nil
	}
	secret, err := s.secretOf(ctx)
	if err != nil {
		return nil, err
	}
	s.at = time.Now()
	if known != nil && bytes.Equal(*known, secret) {
		return known, nil
	}
	s.secret.Store(&secret)
	return &secret, nil
}
