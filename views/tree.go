package views

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
)

// The bounds of a JSON document on a page: what stands open, what is drawn at all,
// and how much of the raw text is shown. The rest is in the download.
const (
	treeOpenLines = 200
	treeMaxLines  = 300
	treeMaxDepth  = 40
	treeTextMax   = 2 << 10
	rawMax        = 64 << 10
)

const maskText = "••••••••"

// JSON is a document as a page shows it: a tree and its raw text, both with masked
// values. Make it with [NewJSON].
type JSON struct {
	Size     string // "312 bytes"
	Root     *Node  // nil when the text is not one JSON document
	Raw      string // indented, keys sorted, cut at 64 KiB
	Cut      bool   // Raw or the tree leaves something out
	Masked   int    // values not shown
	Download string // where the whole is to be had; empty for nowhere
	Reveal   *Action
}

// Node is a value in the tree.
type Node struct {
	Key  string
	Kind string // object, array, string, number, literal, masked, more
	Text string // as JSON writes it, numbers digit for digit; "5 keys" of an object
	Kids []Node
	Open bool
}

type treeBuilder struct {
	masked func(key string) bool
	lines  int
	out    *JSON
}

// NewJSON reads a document. Keys are sorted and numbers keep every digit. A value
// whose key masked approves of is not shown, whatever it is; nil masks nothing.
// Text that is not JSON is shown raw.
func NewJSON(raw []byte, masked func(key string) bool) JSON {
	doc := JSON{Size: sizeText(len(raw))}
	if masked == nil {
		masked = func(string) bool { return false }
	}
	value, err := decode(raw)
	if err != nil {
		doc.Raw, doc.Cut = cutText(visible(string(raw)), written(string(raw), rawMax))
		return doc
	}
	b := &treeBuilder{masked: masked, out: &doc}
	root := b.node("", value, 0)
	doc.Root = &root
	var text strings.Builder
	b.write(&text, value, 0)
	var cut bool
	doc.Raw, cut = cutText(text.String(), written(text.String(), rawMax))
	doc.Cut = doc.Cut || cut
	return doc
}

func decode(raw []byte) (any, error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var value any
	if err := d.Decode(&value); err != nil {
		return nil, err
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, fmt.Errorf("more than one document")
	}
	return value, nil
}

func (b *treeBuilder) node(key string, value any, depth int) Node {
	b.lines++
	n := Node{Key: key, Open: b.lines <= treeOpenLines && depth < 3}
	if depth > 0 && key != "" && b.masked(key) {
		b.out.Masked++
		n.Kind, n.Text = "masked", maskText
		return n
	}
	switch v := value.(type) {
	case map[string]any:
		n.Kind, n.Text = "object", plural(len(v), "key")
		for i, k := range sortedKeys(v) {
			if b.full(depth) {
				n.Kids = append(n.Kids, b.more(len(v)-i))
				break
			}
			kid := b.node(k, v[k], depth+1)
			kid.Key = keyText(k)
			n.Kids = append(n.Kids, kid)
		}
	case []any:
		n.Kind, n.Text = "array", plural(len(v), "item")
		for i, item := range v {
			if b.full(depth) {
				n.Kids = append(n.Kids, b.more(len(v)-i))
				break
			}
			n.Kids = append(n.Kids, b.node("", item, depth+1))
		}
	default:
		n.Kind, n.Text = scalar(v)
		var cut bool
		if n.Text, cut = cutText(n.Text, treeTextMax); cut {
			b.out.Cut = true
		}
	}
	return n
}

func (b *treeBuilder) full(depth int) bool { return b.lines >= treeMaxLines || depth >= treeMaxDepth }

func (b *treeBuilder) more(n int) Node {
	b.out.Cut = true
	return Node{Kind: "more", Text: strconv.Itoa(n) + " more"}
}

// write is the raw view: the same values, indented, with what is masked left out.
func (b *treeBuilder) write(w *strings.Builder, value any, depth int) {
	if w.Len() > rawMax {
		return
	}
	pad := strings.Repeat("  ", min(depth, treeMaxDepth))
	switch v := value.(type) {
	case map[string]any:
		if len(v) == 0 {
			w.WriteString("{}")
			return
		}
		w.WriteString("{\n")
		for i, k := range sortedKeys(v) {
			_, key := scalar(k)
			w.WriteString(pad + "  " + key + ": ")
			if b.masked(k) {
				w.WriteString(`"` + maskText + `"`)
			} else {
				b.write(w, v[k], depth+1)
			}
			w.WriteString(comma(i, len(v)))
		}
		w.WriteString(pad + "}")
	case []any:
		if len(v) == 0 {
			w.WriteString("[]")
			return
		}
		w.WriteString("[\n")
		for i, item := range v {
			w.WriteString(pad + "  ")
			b.write(w, item, depth+1)
			w.WriteString(comma(i, len(v)))
		}
		w.WriteString(pad + "]")
	default:
		_, text := scalar(v)
		w.WriteString(text)
	}
}

// keyText is a key as the tree shows it; an empty one can be seen.
func keyText(k string) string {
	if k == "" {
		return `""`
	}
	k, _ = cutText(visible(k), treeTextMax)
	return k
}

func comma(i, n int) string {
	if i == n-1 {
		return "\n"
	}
	return ",\n"
}

// scalar returns kind and text of a value that holds no others.
func scalar(value any) (kind, text string) {
	switch v := value.(type) {
	case json.Number:
		return "number", v.String()
	case string:
		var b bytes.Buffer
		e := json.NewEncoder(&b)
		e.SetEscapeHTML(false) // the template escapes
		if err := e.Encode(v); err != nil {
			return "string", strconv.Quote(v)
		}
		return "string", visible(strings.TrimSuffix(b.String(), "\n"))
	case bool:
		return "literal", strconv.FormatBool(v)
	default:
		return "literal", "null"
	}
}

// visible spells out the characters that reorder or hide text around them.
func visible(s string) string {
	if !strings.ContainsFunc(s, hidden) {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		if hidden(r) {
			fmt.Fprintf(&b, `\u%04x`, r)
			continue
		}
		b.WriteRune(r)
	}
	return b.String()
}

func hidden(r rune) bool {
	return r >= 0x202a && r <= 0x202e || r >= 0x2066 && r <= 0x2069 || r >= 0x200b && r <= 0x200f || r == 0xfeff ||
		r < 0x20 && r != '\n' && r != '\t'
}

// cutText shortens s to at most n bytes, at a character's edge.
func cutText(s string, n int) (string, bool) {
	if len(s) <= n {
		return s, false
	}
	for n > 0 && s[n]&0xc0 == 0x80 {
		n--
	}
	return s[:n] + "…", true
}

// written returns how much of s takes at most n bytes once the template has
// escaped it: a quote alone takes five.
func written(s string, n int) int {
	size := 0
	for i := range len(s) {
		switch s[i] {
		case '"', '\'', '&':
			size += 5
		case '<', '>':
			size += 4
		default:
			size++
		}
		if size > n {
			return i
		}
	}
	return len(s)
}

func sortedKeys(m map[string]any) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return strconv.Itoa(n) + " " + what + "s"
}

func sizeText(n int) string {
	switch {
	case n >= 10<<20:
		return strconv.Itoa(n>>20) + " MiB"
	case n >= 10<<10:
		return strconv.Itoa(n>>10) + " KiB"
	}
	return plural(n, "byte")
}
