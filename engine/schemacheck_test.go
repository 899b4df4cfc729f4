package engine

import (
	"context"
	"errors"
	"testing"
	"time"
)

// noReader is a database that must not be asked.
type noReader struct{}

var errAsked = errors.New("the database was asked")

func (noReader) versions(context.Context) ([]byte, float64, error)     { return nil, 0, errAsked }
func (noReader) schema(context.Context, string) ([]byte, int32, error) { return nil, 0, errAsked }
func (noReader) held(context.Context, string) (bool, error)            { return false, errAsked }

func knowing(age time.Duration) *Client {
	c := &Client{}
	c.schemas.known.Store(&knownSchemas{at: time.Now().Add(-age), versions: map[string]int32{"strict": 1}})
	return c
}

func TestATypeWithoutASchemaCostsALookIntoAMap(t *testing.T) {
	c := knowing(-time.Hour) // fresh for as long as this takes
	r := &request{jobType: "plain", payload: []byte(`{}`)}
	from := schemaReader(noReader{})
	if n := testing.AllocsPerRun(100, func() {
		if err := c.fit(t.Context(), from, r); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
	if err := knowing(schemasFresh+time.Second).fit(t.Context(), from, r); !errors.Is(err, errAsked) {
		t.Errorf("what it knows is old: %v, want it to ask", err)
	}
	if err := c.fit(t.Context(), from, &request{jobType: "strict"}); !errors.Is(err, errAsked) {
		t.Errorf("a schema it has not read: %v, want it to ask", err)
	}
}

func BenchmarkATypeWithoutASchema(b *testing.B) {
	c, r, from := knowing(-time.Hour), &request{jobType: "plain"}, schemaReader(noReader{})
	for b.Loop() {
		if err := c.fit(b.Context(), from, r); err != nil {
			b.Fatal(err)
		}
	}
}
