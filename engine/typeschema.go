package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/reliable-job-engine/reliable-job-engine/engine/internal/dbsqlc"
	"github.com/reliable-job-engine/reliable-job-engine/engine/internal/schema"
)

// MaxSchemaBytes bounds a type's schema, as it is written: 64 KiB.
const MaxSchemaBytes = schema.MaxBytes

// ErrNoTypeSchema: the type has no schema, so that any JSON object is a payload of it.
var ErrNoTypeSchema = errors.New("type has no schema")

// TypeSchema is what payloads of a type must fit.
type TypeSchema struct {
	Type string
	// Schema is the JSON Schema, equal to what was set; its keys may stand otherwise.
	Schema json.RawMessage
	// Version rises with each change, removals included.
	Version   int
	UpdatedAt time.Time
	UpdatedBy string
}

// SetTypeSchema makes payloads of a type fit a JSON Schema from now on, at the doors
// of Go, HTTP and the command line: within 5 s everywhere, here at once. It is a JSON
// object of at most [MaxSchemaBytes] by draft 2020-12, or the earlier draft that its
// $schema names; formats are checked, patterns are those of Go's regexp, and $ref
// leads inside it. Jobs that are there already are not looked at, nor is what comes by
// the door of SQL, which cannot run a schema. Setting what is set already changes
// nothing and leaves no trace. Error: *[ValidationError].
func (c *Client) SetTypeSchema(ctx context.Context, typ string, text json.RawMessage, a Actor) (TypeSchema, error) {
	if bad := c.checkSchema(typ, text); len(bad) > 0 {
		return TypeSchema{}, &ValidationError{bad}
	}
	if err := c.changeSchema(ctx, "set_schema", typ, text, a); err != nil {
		return TypeSchema{}, err
	}
	return c.TypeSchema(ctx, typ)
}

// RemoveTypeSchema makes any JSON object a payload of a type again. Error:
// [ErrNoTypeSchema].
func (c *Client) RemoveTypeSchema(ctx context.Context, typ string, a Actor) error {
	if !validName(typ) {
		return ErrNoTypeSchema
	}
	return c.changeSchema(ctx, "remove_schema", typ, nil, a)
}

// TypeSchema is a type's schema. Error: [ErrNoTypeSchema].
func (c *Client) TypeSchema(ctx context.Context, typ string) (TypeSchema, error) {
	if !validName(typ) {
		return TypeSchema{}, ErrNoTypeSchema
	}
	row, err := c.q.GetTypeSchema(ctx, c.pool, typ)
	if errors.Is(err, pgx.ErrNoRows) {
		return TypeSchema{}, ErrNoTypeSchema
	}
	if err != nil {
		return TypeSchema{}, fmt.Errorf("read schema of type %s: %w", typ, err)
	}
	return TypeSchema{typ, row.Schema, int(row.Version), row.UpdatedAt, row.UpdatedBy}, nil
}

// checkSchema is what is wrong with a schema; its limits are those of payloads, but
// for its size.
func (c *Client) checkSchema(typ string, text []byte) []FieldError {
	if !validName(typ) {
		return []FieldError{{"type", codeFor(typ), nameRule}}
	}
	if len(bytes.TrimSpace(text)) == 0 {
		return []FieldError{{"schema", "required", "a JSON Schema"}}
	}
	limits := c.limits
	limits.bytes = MaxSchemaBytes
	if bad := limits.check(text); len(bad) > 0 {
		bad[0].Field = "schema" + bad[0].Field[len("payload"):]
		return bad
	}
	if _, err := schema.Compile(text); err != nil {
		return []FieldError{{"schema", "invalid", err.Error()}}
	}
	return nil
}

func (c *Client) changeSchema(ctx context.Context, action, typ string, text []byte, a Actor) error {
	ctx, cancel := bounded(ctx)
	defer cancel()
	err := c.commit(ctx, func(tx pgx.Tx) error {
		if text != nil {
			if err := c.q.MakeJobType(ctx, tx, typ, a.Name); err != nil {
				return err
			}
		}
		old, err := c.q.LockJobType(ctx, tx, typ)
		switch {
		case errors.Is(err, pgx.ErrNoRows), err == nil && text == nil && old.Schema == nil:
			return ErrNoTypeSchema
		case err != nil:
			return err
		}
		set, err := c.q.SetTypeSchema(ctx, tx, text, a.Name, typ)
		if errors.Is(err, pgx.ErrNoRows) {
			return errSame
		}
		if err != nil {
			return err
		}
		return c.recordSchema(ctx, tx, action, typ, old, dbsqlc.LockJobTypeRow{Schema: text, Version: set.Version}, a)
	})
	switch {
	case errors.Is(err, errSame):
		return nil
	case errors.Is(err, ErrNoTypeSchema):
		return err
	case err != nil:
		return fmt.Errorf("change schema of type %s: %w", typ, err)
	}
	c.schemas.known.Store(nil)
	c.log.LogAttrs(ctx, slog.LevelInfo, LogOperatorAction, slog.String("actor", a.Name), slog.String("reason", a.Reason),
		slog.String("action", action), slog.String("target", typ))
	return nil
}

func (c *Client) recordSchema(ctx context.Context, tx pgx.Tx, action, typ string, before, after dbsqlc.LockJobTypeRow, a Actor) error {
	or(&a.Source, "go")
	p := dbsqlc.RecordActionParams{Actor: a.Name, Source: a.Source, Action: action, TargetKind: "type", Target: typ, Reason: optional(a.Reason),
		Affected: 1, RequestID: optional(a.RequestID), Address: optional(a.Address)}
	for _, side := range []struct {
		row dbsqlc.LockJobTypeRow
		to  *[]byte
	}{{before, &p.Before}, {after, &p.After}} {
		text, err := json.Marshal(map[string]any{"schema": json.RawMessage(orNull(side.row.Schema)), "version": side.row.Version})
		if err != nil {
			return err
		}
		*side.to = text
	}
	_, err := c.q.RecordAction(ctx, tx, p)
	return err
}

func orNull(text []byte) []byte {
	if text == nil {
		return []byte("null")
	}
	return text
}
