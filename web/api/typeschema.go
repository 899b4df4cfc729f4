package api

import (
	"encoding/json"
	"net/http"
	"net/url"

	"github.com/labstack/echo/v4"

	"github.com/reliable-job-engine/reliable-job-engine/engine"
	"github.com/reliable-job-engine/reliable-job-engine/web/auth"
)

// typeSchemaJSON is what payloads of a type must fit.
type typeSchemaJSON struct {
	Type      string          `json:"type"`
	Schema    json.RawMessage `json:"schema"`
	Version   int             `json:"version"`
	UpdatedAt stamp           `json:"updated_at"`
	UpdatedBy string          `json:"updated_by"`
}

func typeSchemaOf(s engine.TypeSchema) typeSchemaJSON {
	return typeSchemaJSON{s.Type, s.Schema, s.Version, stamp(s.UpdatedAt), s.UpdatedBy}
}

var typeSchemaFields = []string{"schema", "reason"}

// everyQueue keeps callers who are limited to queues from what counts in all.
func everyQueue(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		if p := auth.Caller(c); p.Limited() {
			return p.LimitedTo("The schema of a type counts in every queue.")
		}
		return next(c)
	}
}

// typeName reads the type of a path.
func typeName(c echo.Context) (string, error) {
	if err := readQuery(c).err(); err != nil {
		return "", err
	}
	name := c.Param("type")
	if c.Request().URL.RawPath != "" { // the router hands parameters on as they were sent
		var err error
		if name, err = url.PathUnescape(name); err != nil {
			return "", engine.ErrNoTypeSchema
		}
	}
	return name, nil
}

func (a *API) getTypeSchema(c echo.Context) error {
	name, err := typeName(c)
	if err != nil {
		return err
	}
	s, err := a.Engine.TypeSchema(c.Request().Context(), name)
	if err != nil {
		return err
	}
	return answer(c, http.StatusOK, typeSchemaOf(s))
}

// setTypeSchema takes {"schema": {...}, "reason": "..."}.
func (a *API) setTypeSchema(c echo.Context) error {
	name, err := typeName(c)
	if err != nil {
		return err
	}
	body, err := readBody(c, 2*engine.MaxSchemaBytes, "A schema may have 65536 bytes.")
	if err != nil {
		return err
	}
	members, err := object(body)
	if err != nil {
		return err
	}
	q := &enqueueRequest{given: map[string]bool{}} // for its ways to read a value
	var schema json.RawMessage
	var reason string
	for _, m := range members {
		q.given[m.name] = true
		switch m.name {
		case "schema":
			schema = m.value
		case "reason":
			reason = q.reason(m)
		default:
			q.refuse(m.at, "unknown-field", unknown(m.name, typeSchemaFields))
		}
	}
	if !q.given["schema"] {
		q.refuse("/schema", "required", "a JSON Schema; to have none, send DELETE")
	}
	if len(q.bad) > 0 {
		return flawed(q.bad...)
	}
	s, err := a.Engine.SetTypeSchema(c.Request().Context(), name, schema, a.actor(c, reason))
	if err != nil {
		return err
	}
	a.Acts.OperatorAction("set_schema", "done")
	return answer(c, http.StatusOK, typeSchemaOf(s))
}

func (a *API) removeTypeSchema(c echo.Context) error {
	name, err := typeName(c)
	if err != nil {
		return err
	}
	reason, err := a.reason(c)
	if err != nil {
		return err
	}
	if err := a.Engine.RemoveTypeSchema(c.Request().Context(), name, a.actor(c, reason)); err != nil {
		return err
	}
	a.Acts.OperatorAction("remove_schema", "done")
	return c.NoContent(http.StatusNoContent)
}
