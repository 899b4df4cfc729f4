package api

import (
	"bytes"
	"context"
	"crypto/hmac"
	"encoding/base64"
	"errors"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/reliable-job-engine/reliable-job-engine/engine/inspect"
)

// servers with one database: its secret, and how often each read it.
type secretStore struct {
	secret []byte
	reads  int
	err    error
}

func (s *secretStore) read(context.Context) ([]byte, error) {
	s.reads++
	return s.secret, s.err
}

func newStore(text string) *secretStore {
	return &secretStore{secret: []byte(strings.Repeat(text, 32))}
}

// readCursor tells of a cursor, its flaws and the database's error.
func readCursor(t *testing.T, s *cursors, list, text string, filter url.Values) (cursor, []Flaw) {
	t.Helper()
	q := &query{values: url.Values{"cursor": {text}}}
	for name, x := range filter {
		q.values[name] = x
	}
	c, err := s.read(t.Context(), q, list)
	if err != nil {
		t.Fatal(err)
	}
	return c, q.bad
}

func TestCursorsBelongToOneListAndFilter(t *testing.T) {
	t.Parallel()
	store := newStore("a")
	mine, other := &cursors{secretOf: store.read}, &cursors{secretOf: store.read}
	values := url.Values{"type": {"email"}, "limit": {"5"}}
	made := cursor{Of: listed("dlq", values), Dead: &inspect.DeadCursor{DiedAt: time.Now().UTC(), ID: uuid.New()}}
	text, err := mine.write(t.Context(), made)
	if err != nil || !strings.HasPrefix(text, "eyJ") {
		t.Fatalf("cursor %q, %v", text, err)
	}
	for name, s := range map[string]*cursors{"this server": mine, "another server": other} {
		if got, bad := readCursor(t, s, "dlq", text, url.Values{"type": {"email"}, "limit": {"9"}}); len(bad) > 0 || got.Dead == nil ||
			!got.Dead.DiedAt.Equal(made.Dead.DiedAt) || got.Dead.ID != made.Dead.ID {
			t.Errorf("%s: its own list = %+v, %v", name, got, bad)
		}
	}
	for name, ask := range map[string]struct {
		list   string
		filter url.Values
	}{"another list": {"jobs", values}, "another filter": {"dlq", url.Values{"type": {"sms"}}}, "no filter": {"dlq", nil}} {
		if got, bad := readCursor(t, mine, ask.list, text, ask.filter); len(bad) != 1 || bad[0].Parameter != "cursor" || got.Dead != nil {
			t.Errorf("%s: %+v, %v, want a refusal", name, got, bad)
		}
	}
}

// TestForgedCursorsLeadNowhere, in each of their bits, and cost next to nothing.
func TestForgedCursorsLeadNowhere(t *testing.T) {
	t.Parallel()
	store := newStore("a")
	s := &cursors{secretOf: store.read}
	text, err := s.write(t.Context(), cursor{Of: listed("jobs", nil), Before: uuid.New()})
	if err != nil {
		t.Fatal(err)
	}
	signed, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	forged := []string{"", "e", "eyJ", "null", "%%%", text + "A", text[:len(text)-2], strings.Repeat("A", 2000), base64.RawURLEncoding.EncodeToString(signed[:len(signed)-signatureBytes])}
	for i := range signed {
		odd := bytes.Clone(signed)
		odd[i] ^= 1
		forged = append(forged, base64.RawURLEncoding.EncodeToString(odd))
	}
	for _, f := range forged {
		if got, bad := readCursor(t, s, "jobs", f, nil); len(bad) != 1 || got.Before != uuid.Nil {
			t.Errorf("%q = %+v, %v, want a refusal", f, got, bad)
		}
	}
	if store.reads != 1 {
		t.Errorf("the secret was read %d times, want once", store.reads)
	}
	if _, bad := readCursor(t, &cursors{secretOf: newStore("b").read}, "jobs", text, nil); len(bad) != 1 {
		t.Error("another installation takes the cursor")
	}
}

func TestAChangedSecretIsLearnt(t *testing.T) {
	t.Parallel()
	store := newStore("a")
	s, other := &cursors{secretOf: store.read}, &cursors{secretOf: store.read}
	at := cursor{Of: listed("jobs", nil), Before: uuid.New()}
	old, err := s.write(t.Context(), at)
	if err != nil {
		t.Fatal(err)
	}
	store.secret = []byte(strings.Repeat("b", 32))
	fresh, err := other.write(t.Context(), at)
	if err != nil {
		t.Fatal(err)
	}
	if _, bad := readCursor(t, s, "jobs", fresh, nil); len(bad) != 1 {
		t.Error("the secret was read again at once")
	}
	s.at = s.at.Add(-secretEvery)
	if _, bad := readCursor(t, s, "jobs", fresh, nil); len(bad) != 0 {
		t.Errorf("the new secret: %v", bad)
	}
	if _, bad := readCursor(t, s, "jobs", old, nil); len(bad) != 1 {
		t.Error("a cursor of the old secret is taken")
	}
	store.err = errors.New("the database is away")
	if _, err := (&cursors{secretOf: store.read}).read(t.Context(), &query{values: url.Values{"cursor": {old}}}, "jobs"); !errors.Is(err, store.err) {
		t.Errorf("without a database: %v", err)
	}
}

// FuzzCursor: no text but what was signed here is a cursor, whatever it holds, and what
// was signed is read back as it was.
func FuzzCursor(f *testing.F) {
	store := newStore("a")
	s := &cursors{secretOf: store.read}
	for _, c := range []cursor{{Of: listed("jobs", nil), Before: uuid.UUID{1}}, {Of: listed("jobs", nil), N: 1 << 62}, {Of: "other"}} {
		text, err := s.write(f.Context(), c)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text, []byte(`{"of":"x"}`))
	}
	f.Add("eyJvZiI6IiJ9", []byte("null"))
	f.Add("", []byte(nil))
	f.Add("=-_", []byte(`{"of":1e400,"b":"\ud83d"}`))
	f.Fuzz(func(t *testing.T, text string, place []byte) {
		c, bad := readCursor(t, s, "jobs", text, nil)
		signed, err := base64.RawURLEncoding.Strict().DecodeString(text)
		at := len(signed) - signatureBytes
		mine := err == nil && at > 0 && hmac.Equal(signature(store.secret, signed[:at]), signed[at:])
		if !mine && (len(bad) != 1 || bad[0].Parameter != "cursor" || c.Before != uuid.Nil || c.N != 0) {
			t.Errorf("%q is taken for a cursor: %+v, %v", text, c, bad)
		}
		// A place that was signed, but is none, or of another list.
		forged := base64.RawURLEncoding.EncodeToString(append(bytes.Clone(place), signature(store.secret, place)...))
		if c, bad := readCursor(t, s, "jobs", forged, nil); len(bad) == 0 && c.Of != listed("jobs", url.Values{}) {
			t.Errorf("%q leads to another list: %+v", place, c)
		}
	})
}
