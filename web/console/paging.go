package console

import (
	"encoding/binary"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/reliable-job-engine/reliable-job-engine/engine"
	"github.com/reliable-job-engine/reliable-job-engine/views"
)

// maxBack is how many pages back an address remembers.
const maxBack = 10

// cursor is a place in a list: after which row, and the places of the pages
// before, so that one can go back while new rows arrive.
type cursor struct {
	key   string // as it stands in the address; empty is the first page
	id    engine.ID
	back  []string
	limit int
}

// readCursor reads the place in a list of jobs, whose key is a job's id.
func readCursor(q url.Values) (cursor, error) {
	c, err := readKey(q)
	if err != nil || c.key == "" {
		return c, err
	}
	if c.id, err = parseID(c.key); err != nil {
		return c, badQuery("The parameter cursor is none that this page has given.")
	}
	return c, nil
}

func readKey(q url.Values) (cursor, error) {
	c := cursor{key: q.Get("cursor"), limit: pageSize}
	if s := q.Get("limit"); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil || n != pageSize && n != largePage || strconv.Itoa(n) != s {
			return c, badQuery("The parameter limit may be " + strconv.Itoa(pageSize) + " or " + strconv.Itoa(largePage) + ".")
		}
		c.limit = n
	}
	if s := q.Get("back"); s != "" {
		c.back = strings.Split(s, "~")
		if len(c.back) > maxBack {
			return c, badQuery("The parameter back is none that this page has given.")
		}
	}
	return c, nil
}

// pager is the foot of a list. next is the key of the next page, empty at the end.
func (c cursor) pager(path string, q url.Values, rows int, what, next string) views.Pager {
	p := views.Pager{}
	if rows > 0 {
		p.Text = plural(int64(rows), what)
		if next != "" {
			p.Text += ", older ones follow"
		}
	}
	href := func(key string, back []string, limit int) string {
		out := url.Values{}
		for name, values := range q {
			out[name] = values
		}
		if key != "" {
			out.Set("cursor", key)
		}
		if len(back) > 0 {
			out.Set("back", strings.Join(back, "~"))
		}
		if limit != pageSize {
			out.Set("limit", strconv.Itoa(limit))
		}
		if e := out.Encode(); e != "" {
			return path + "?" + e
		}
		return path
	}
	if next != "" {
		var back []string
		if c.key != "" {
			back = append(append(back, c.back...), c.key)
			back = back[max(len(back)-maxBack, 0):]
		}
		p.Older = href(next, back, c.limit)
	}
	if c.key != "" {
		if n := len(c.back); n > 0 {
			p.Newer = href(c.back[n-1], c.back[:n-1], c.limit)
		} else {
			p.Newer = href("", nil, c.limit)
		}
	}
	if rows > 0 {
		other := largePage
		if c.limit == largePage {
			other = pageSize
		}
		p.Size, p.SizeHref = strconv.Itoa(other)+" a page", href(c.key, c.back, other)
	}
	return p
}

// idTime is when an id was made: it begins with its milliseconds.
func idTime(id engine.ID) time.Time {
	var b [8]byte
	copy(b[2:], id[:6])
	return time.UnixMilli(int64(binary.BigEndian.Uint64(b[:]))).UTC()
}
