package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"

	"github.com/spf13/cobra"
)

const (
	usualLimit = 20
	pageLimit  = 200 // the most that the API gives at once
)

// listFlags are those of every list.
type listFlags struct {
	limit int
	all   bool
}

func (l *listFlags) add(cmd *cobra.Command) {
	cmd.Flags().IntVar(&l.limit, "limit", usualLimit, "print at most `n`")
	cmd.Flags().BoolVar(&l.all, "all", false, "print all there are, page by page")
}

func (l *listFlags) check() error {
	if l.limit < 1 {
		return usage("Give 1 or more, or --all.", "--limit %d asks for nothing", l.limit)
	}
	return nil
}

// page is one page of a list.
type page struct {
	Data       []json.RawMessage `json:"data"`
	NextCursor string            `json:"next_cursor"`
	HasMore    bool              `json:"has_more"`
	// Partial: the server looked for as long as it may, and goes on from the cursor.
	Partial bool `json:"partial"`
}

// pages reads pages until there are as many items as asked for.
func (c *client) pages(ctx context.Context, path string, query url.Values, l listFlags) (body []byte, items []json.RawMessage, err error) {
	if err := l.check(); err != nil {
		return nil, nil, err
	}
	count := 0
	for {
		wanted := pageLimit
		if !l.all {
			wanted = min(wanted, l.limit-len(items))
		}
		query.Set("limit", strconv.Itoa(wanted))
		body, err = c.call(ctx, request{method: http.MethodGet, path: path, query: query})
		if err != nil {
			return nil, nil, err
		}
		var p page
		if err := json.Unmarshal(body, &p); err != nil {
			return nil, nil, fmt.Errorf("read the server's answer: %w", err)
		}
		items = append(items, p.Data...)
		count++
		if !p.HasMore || p.NextCursor == "" || !l.all && (len(items) >= l.limit || p.Partial) {
			switch {
			case p.HasMore && p.Partial:
				c.app.say("The search took its time and stopped; it goes on to the end with --all.")
			case p.HasMore:
				c.app.say("There are more; see them with --all, or more of them with --limit.")
			}
			if count > 1 {
				body, err = joined(p, items)
			}
			return body, items, err
		}
		query.Set("cursor", p.NextCursor)
	}
}

// joined is several pages as one, its elements as they came.
func joined(last page, items []json.RawMessage) ([]byte, error) {
	var b bytes.Buffer
	b.WriteString(`{"data":[`)
	for i, raw := range items {
		if i > 0 {
			b.WriteByte(',')
		}
		b.Write(raw)
	}
	tail, err := json.Marshal(struct {
		NextCursor *string `json:"next_cursor"`
		HasMore    bool    `json:"has_more"`
	}{orNil(last.NextCursor), last.HasMore})
	if err != nil {
		return nil, fmt.Errorf("write the list: %w", err)
	}
	b.WriteString("],")
	b.Write(tail[1:])
	return b.Bytes(), nil
}

func orNil(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// whole reads a list that the API answers in one piece, and cuts it to the limit.
func (c *client) whole(ctx context.Context, path string, l listFlags) (body []byte, items []json.RawMessage, err error) {
	if err := l.check(); err != nil {
		return nil, nil, err
	}
	if body, err = c.one(ctx, path, nil); err != nil {
		return nil, nil, err
	}
	if items, err = listOf(body); err != nil || l.all || len(items) <= l.limit {
		return body, items, err
	}
	c.app.say("There are %d; see them with --all, or more of them with --limit.", len(items))
	items = items[:l.limit]
	body, err = joined(page{HasMore: true}, items)
	return body, items, err
}

// one reads a single thing.
func (c *client) one(ctx context.Context, path string, query url.Values) ([]byte, error) {
	return c.call(ctx, request{method: http.MethodGet, path: path, query: query})
}

// listOf is the elements of an answer that has all of them.
func listOf(body []byte) ([]json.RawMessage, error) {
	var p page
	if err := json.Unmarshal(body, &p); err != nil {
		return nil, fmt.Errorf("read the server's answer: %w", err)
	}
	return p.Data, nil
}
