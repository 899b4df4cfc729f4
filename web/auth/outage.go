package auth

import (
	"crypto/sha256"
	"net/http"
	"sync"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/reliable-job-engine/reliable-job-engine/engine/access"
)

const (
	// outageGrace is how long after its last use a session may still read while the
	// database cannot be asked whether it lives.
	outageGrace = 5 * time.Minute
	outageMost  = 1000
)

// outage remembers sessions for the time in which nobody can ask for them: an
// operator who looks at the console while the database goes away must still see
// what it last knew. It keeps hashes, and what it gives may only read.
type outage struct {
	mu   sync.Mutex
	seen map[[sha256.Size]byte]remembered
}

type remembered struct {
	session access.Session
	at      time.Time
}

// note keeps a session that the database has just confirmed.
func (o *outage) note(token string, s access.Session, now time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.seen == nil {
		o.seen = map[[sha256.Size]byte]remembered{}
	}
	if len(o.seen) >= outageMost {
		for k, r := range o.seen {
			if now.Sub(r.at) > outageGrace {
				delete(o.seen, k)
			}
		}
		if len(o.seen) >= outageMost {
			clear(o.seen)
		}
	}
	o.seen[sha256.Sum256([]byte(token))] = remembered{s, now}
}

// forget is for a session that has ended.
func (o *outage) forget(token string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.seen, sha256.Sum256([]byte(token)))
}

func (o *outage) recall(token string, now time.Time) (access.Session, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	r, found := o.seen[sha256.Sum256([]byte(token))]
	if !found || now.Sub(r.at) > outageGrace || now.After(r.session.EndsAt) {
		return access.Session{}, false
	}
	return r.session, true
}

// enterFromMemory lets a reader in whom the database cannot confirm.
func (s *Sessions) enterFromMemory(c echo.Context, token string) bool {
	if m := c.Request().Method; m != http.MethodGet && m != http.MethodHead {
		return false
	}
	session, found := s.outage.recall(token, time.Now())
	if !found {
		return false
	}
	session.Role = access.RoleViewer
	enter(c, session)
	return true
}
