package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/spf13/cobra"
)

// wireTypeSchema is what jobctl reads of a type's schema.
type wireTypeSchema struct {
	Type      string          `json:"type"`
	Schema    json.RawMessage `json:"schema"`
	Version   int             `json:"version"`
	UpdatedAt time.Time       `json:"updated_at"`
	UpdatedBy string          `json:"updated_by"`
}

var typeSchemaView = view[wireTypeSchema]{
	id: func(s wireTypeSchema) string { return s.Type },
	columns: []column[wireTypeSchema]{
		{name: "type", value: func(s wireTypeSchema) string { return s.Type }},
		{name: "version", right: true, value: func(s wireTypeSchema) string { return strconv.Itoa(s.Version) }},
		{name: "updated", value: func(s wireTypeSchema) string { return instant(&s.UpdatedAt) }},
		{name: "by", value: func(s wireTypeSchema) string { return s.UpdatedBy }},
		{name: "schema", value: func(s wireTypeSchema) string { return string(s.Schema) }},
	},
}

func schemaPath(typ string) string { return "/api/v1/types/" + url.PathEscape(typ) + "/schema" }

func newTypesCommand(a *app) *cobra.Command {
	cmd := noun("types", "Settings of job types", "  jobctl types schema get email")
	schema := noun("schema", "What payloads of a type must fit", "  jobctl types schema set email email.schema.json")
	get := &cobra.Command{
		Use: "get TYPE", Short: "Show the JSON Schema of a type", Args: exactly("the type"),
		Example: "  jobctl types schema get email\n  jobctl types schema get email --json | jq .schema >email.schema.json",
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.connect()
			if err != nil {
				return err
			}
			body, err := c.one(cmd.Context(), schemaPath(args[0]), nil)
			if err != nil {
				return err
			}
			return typeSchemaView.print(a, body, []json.RawMessage{body})
		},
	}
	schema.AddCommand(a.watched(get), newTypesSchemaSetCommand(a), newTypesSchemaRemoveCommand(a))
	cmd.AddCommand(schema)
	return cmd
}

func newTypesSchemaSetCommand(a *app) *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use: "set TYPE FILE", Short: "Refuse payloads of a type that do not fit a JSON Schema", Args: exactly("the type", "a file, or - for stdin"),
		Long: "Refuse payloads of a type that do not fit a JSON Schema (draft 2020-12, at most 64 KiB), from within 5 s on. Jobs that are there\n" +
			"already are not looked at, nor is what is enqueued by SQL.",
		Example: "  jobctl types schema set email email.schema.json --reason 'since 2.4'\n  generate-schema | jobctl types schema set email -",
		RunE: func(cmd *cobra.Command, args []string) error {
			text, err := readSchema(args[1], a.in)
			if err != nil {
				return err
			}
			body := map[string]any{"schema": text}
			if reason != "" {
				body["reason"] = reason
			}
			c, err := a.connect()
			if err != nil {
				return err
			}
			if a.dryRun {
				return a.rehearseEnqueue(c, body, "")
			}
			answer, err := c.call(cmd.Context(), request{method: http.MethodPut, path: schemaPath(args[0]), body: body})
			if err != nil {
				return err
			}
			a.say("Payloads of %s must fit it from within 5 s on.", args[0])
			return typeSchemaView.print(a, answer, []json.RawMessage{answer})
		},
	}
	cmd.Flags().StringVar(&reason, "reason", "", "`why`, for the audit trail")
	a.addDryRun(cmd)
	return cmd
}

func newTypesSchemaRemoveCommand(a *app) *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use: "remove TYPE", Short: "Take any JSON object as a payload of a type again", Args: exactly("the type"),
		Example: "  jobctl types schema remove email --reason 'too strict'",
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.connect()
			if err != nil {
				return err
			}
			if a.dryRun {
				if _, err := c.one(cmd.Context(), schemaPath(args[0]), nil); err != nil {
					return err
				}
				return a.would("The schema of %s would be removed", args[0])
			}
			if _, err := c.call(cmd.Context(), request{method: http.MethodDelete, path: schemaPath(args[0]), body: reasonBody(reason)}); err != nil {
				return err
			}
			a.say("Any JSON object is a payload of %s again, from within 5 s on.", args[0])
			return nil
		},
	}
	cmd.Flags().StringVar(&reason, "reason", "", "`why`, for the audit trail")
	a.addDryRun(cmd)
	return cmd
}

// readSchema takes a schema from a file, or from stdin.
func readSchema(name string, stdin io.Reader) (json.RawMessage, error) {
	from, text, err := name, []byte(nil), error(nil)
	if name == "-" {
		from = "stdin"
		text, err = readBounded(stdin)
	} else {
		text, err = readFile(name)
	}
	if err != nil {
		return nil, usage("Name a file that holds a JSON Schema, or - for stdin.", "read the schema: %v", err)
	}
	var value json.RawMessage
	if err := json.Unmarshal(text, &value); err != nil {
		var at *json.SyntaxError
		if errors.As(err, &at) {
			return nil, usage("", "%s is not JSON: at byte %d: %v", from, at.Offset, at)
		}
		return nil, fmt.Errorf("read the schema: %w", err)
	}
	return value, nil
}
