package engine

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/reliable-job-engine/reliable-job-engine/engine/internal/dbsqlc"
	"github.com/reliable-job-engine/reliable-job-engine/engine/internal/schema"
)

// schemasFresh is how long a process goes by what it has read of the schemas. A type
// without one costs a look into a map, and one short query in that time.
const schemasFresh = 2 * time.Second

// schemas are the types' schemas as this process knows them.
type schemas struct {
	known    atomic.Pointer[knownSchemas]
	compiled sync.Map // type -> *compiledSchema
}

// knownSchemas are the types that have a schema, and the schemas' versions, as they
// stood at an instant. It is never changed.
type knownSchemas struct {
	at       time.Time
	versions map[string]int32
}

// compiledSchema is a schema of one version, compiled once, when it is first needed.
type compiledSchema struct {
	version int32
	schema  *schema.Schema
	err     error
}

// schemaReader reads schemas over the connection, or in the transaction, that the
// enqueue uses: a second one might wait for the first.
type schemaReader interface {
	versions(ctx context.Context) (text []byte, age float64, err error)
	schema(ctx context.Context, typ string) (text []byte, version int32, err error)
	held(ctx context.Context, key string) (bool, error)
}

// misfit is why a request's payload does not fit the schema of its type, nil if it
// does. err is the database's. A repeated call under an idempotency key gets its first
// answer, whatever the schema has become.
func (c *Client) misfit(ctx context.Context, from schemaReader, r *request) (*ValidationError, error) {
	bad, err := c.misfits(ctx, from, r.jobType, r.payload)
	if err != nil || bad == nil || r.key == "" {
		return bad, err
	}
	held, err := from.held(ctx, r.key)
	if err != nil {
		return nil, fmt.Errorf("look for idempotency key: %w", err)
	}
	if held {
		return nil, nil
	}
	return bad, nil
}

// fit is misfit as one error.
func (c *Client) fit(ctx context.Context, from schemaReader, r *request) error {
	bad, err := c.misfit(ctx, from, r)
	if err == nil && bad != nil {
		err = bad
	}
	return err
}

func (c *Client) misfits(ctx context.Context, from schemaReader, typ string, payload []byte) (*ValidationError, error) {
	known := c.schemas.known.Load()
	if known == nil || time.Since(known.at) > schemasFresh {
		var err error
		if known, err = c.readVersions(ctx, from); err != nil {
			return nil, fmt.Errorf("read schema versions: %w", err)
		}
	}
	version, has := known.versions[typ]
	if !has {
		return nil, nil
	}
	s, err := c.compiledSchema(ctx, from, typ, version)
	if err != nil {
		return nil, fmt.Errorf("read schema of type %s: %w", typ, err)
	}
	return s.misfits(payload), nil
}

// misfits is nil for no schema: it was removed since the versions were read.
func (s *compiledSchema) misfits(payload []byte) *ValidationError {
	switch {
	case s == nil:
		return nil
	case s.err != nil: // written past the engine
		return &ValidationError{[]FieldError{{"payload", codeSchema, "cannot be checked, since the schema of its type " + s.err.Error()}}}
	}
	found := s.schema.Check(payload)
	if len(found) == 0 {
		return nil
	}
	bad := make([]FieldError, len(found))
	for i, f := range found {
		bad[i] = FieldError{fieldPath("payload", f.Path), codeSchema, f.Text}
	}
	return &ValidationError{bad}
}

// codeSchema is the code of fields that do not fit the schema of the job's type.
const codeSchema = "schema"

var dotInName = strings.NewReplacer(`\`, `\\`, `.`, `\.`)

// fieldPath is a [FieldError.Field] of a place inside a field.
func fieldPath(field string, steps []string) string {
	var b strings.Builder
	b.WriteString(field)
	for _, step := range steps {
		b.WriteByte('.')
		_, _ = dotInName.WriteString(&b, step) // a Builder takes all
	}
	return b.String()
}

func (c *Client) readVersions(ctx context.Context, from schemaReader) (*knownSchemas, error) {
	before, began := c.schemas.known.Load(), time.Now()
	text, age, err := from.versions(ctx)
	if err != nil {
		return nil, err
	}
	now := &knownSchemas{at: began.Add(-time.Duration(age * float64(time.Second)))}
	if err := json.Unmarshal(text, &now.versions); err != nil {
		return nil, err
	}
	// What a transaction sees by an old snapshot holds for it alone.
	if age == 0 || time.Since(now.at) < schemasFresh {
		c.schemas.known.CompareAndSwap(before, now)
	}
	return now, nil
}

// compiledSchema is a type's schema of that version or a later one; nil if it was
// removed meanwhile.
func (c *Client) compiledSchema(ctx context.Context, from schemaReader, typ string, version int32) (*compiledSchema, error) {
	if kept, ok := c.schemas.compiled.Load(typ); ok {
		if s := kept.(*compiledSchema); s.version >= version {
			return s, nil
		}
	}
	text, version, err := from.schema(ctx, typ)
	if errors.Is(err, pgx.ErrNoRows) || errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	s := &compiledSchema{version: version}
	s.schema, s.err = schema.Compile(text)
	c.schemas.compiled.Store(typ, s)
	return s, nil
}

// pgxSchemas and sqlSchemas read over a connection or transaction of either kind.
type pgxSchemas struct {
	q  *dbsqlc.Queries
	db dbsqlc.DBTX
}

func (r pgxSchemas) versions(ctx context.Context) ([]byte, float64, error) {
	row, err := r.q.ListSchemaVersions(ctx, r.db)
	return row.Versions, row.AgeSeconds, err
}

func (r pgxSchemas) schema(ctx context.Context, typ string) ([]byte, int32, error) {
	row, err := r.q.GetTypeSchema(ctx, r.db, typ)
	return row.Schema, row.Version, err
}

func (r pgxSchemas) held(ctx context.Context, key string) (bool, error) {
	return r.q.KeyIsHeld(ctx, r.db, key)
}

type sqlSchemas struct{ tx *sql.Tx }

func (r sqlSchemas) versions(ctx context.Context) (text []byte, age float64, err error) {
	err = r.tx.QueryRowContext(ctx, dbsqlc.ListSchemaVersions).Scan(&text, &age)
	return text, age, err
}

func (r sqlSchemas) schema(ctx context.Context, typ string) (text []byte, version int32, err error) {
	var at time.Time
	var by string
	err = r.tx.QueryRowContext(ctx, dbsqlc.GetTypeSchema, typ).Scan(&text, &version, &at, &by)
	return text, version, err
}

func (r sqlSchemas) held(ctx context.Context, key string) (held bool, err error) {
	err = r.tx.QueryRowContext(ctx, dbsqlc.KeyIsHeld, key).Scan(&held)
	return held, err
}
