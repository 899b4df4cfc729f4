package views

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/html"
)

func parse(t testing.TB, page string) *html.Node {
	t.Helper()
	doc, err := html.Parse(strings.NewReader(page))
	if err != nil {
		t.Fatalf("parse: %v", err)
	}
	return doc
}

func elements(n *html.Node, visit func(*html.Node)) {
	if n.Type == html.ElementNode {
		visit(n)
	}
	for c := n.FirstChild; c != nil; c = c.NextSibling {
		elements(c, visit)
	}
}

func attr(n *html.Node, name string) (string, bool) {
	for _, a := range n.Attr {
		if a.Key == name {
			return a.Val, true
		}
	}
	return "", false
}

func text(n *html.Node) string {
	if n.Type == html.TextNode {
		return n.Data
	}
	s := ""
	for c := n.FirstChild; c != nil; c = c.NextSibling {
		s += text(c)
	}
	return s
}

func inside(n *html.Node, tags ...string) *html.Node {
	for p := n.Parent; p != nil; p = p.Parent {
		if slices.Contains(tags, p.Data) {
			return p
		}
	}
	return nil
}

// activeFaults lists what the console's policy forbids.
func activeFaults(doc *html.Node) []string {
	var faults []string
	bad := func(n *html.Node, why string) { faults = append(faults, "<"+n.Data+"> "+why) }
	elements(doc, func(n *html.Node) {
		switch n.Data {
		case "script":
			if src, _ := attr(n, "src"); !strings.HasPrefix(src, "/console/static/") || text(n) != "" {
				bad(n, "is not one of ours")
			}
		case "style", "iframe", "object", "embed", "base", "img":
			bad(n, "has no place here")
		}
		for _, a := range n.Attr {
			switch {
			case a.Key == "style", a.Key == "srcdoc", strings.HasPrefix(a.Key, "on"), strings.HasPrefix(a.Key, "hx-on"), strings.HasPrefix(a.Key, "data-hx-"),
				a.Key == "hx-vals", a.Key == "hx-headers", a.Key == "hx-confirm":
				bad(n, "has "+a.Key)
			case a.Key == "hx-trigger" && a.Val != "live":
				bad(n, "has the trigger "+a.Val)
			case a.Key == "href", a.Key == "action", a.Key == "formaction", a.Key == "src", a.Key == "hx-get", a.Key == "hx-post":
				if v := strings.ToLower(strings.TrimSpace(a.Val)); strings.HasPrefix(v, "javascript:") || strings.HasPrefix(v, "js:") || strings.HasPrefix(v, "data:") {
					bad(n, a.Key+" is "+a.Val)
				}
			}
		}
	})
	return faults
}

func TestNoPageHasInlineCodeOrStyle(t *testing.T) {
	t.Parallel()
	for _, p := range storyPages() {
		for _, f := range activeFaults(parse(t, render(t, p.page))) {
			t.Errorf("%s: %s", p.name, f)
		}
		if p.live != nil {
			for _, f := range activeFaults(parse(t, render(t, p.live))) {
				t.Errorf("%s, live: %s", p.name, f)
			}
		}
	}
}

// treeFaults lists references that lead nowhere and names that are missing.
func treeFaults(doc *html.Node) []string {
	var faults []string
	ids := map[string]int{}
	labels := map[string]bool{}
	elements(doc, func(n *html.Node) {
		if id, ok := attr(n, "id"); ok {
			ids[id]++
			if id == "" || strings.ContainsAny(id, " \t\n") {
				faults = append(faults, "<"+n.Data+"> has the id "+id)
			}
		}
		if n.Data == "label" {
			if id, ok := attr(n, "for"); ok {
				labels[id] = true
			}
		}
	})
	for id, n := range ids {
		if n > 1 {
			faults = append(faults, "id "+id+" stands twice")
		}
	}
	elements(doc, func(n *html.Node) {
		for _, a := range n.Attr {
			switch a.Key {
			case "aria-labelledby", "aria-describedby", "for", "list", "popovertarget", "data-copy-from":
				for id := range strings.FieldsSeq(a.Val) {
					if ids[id] == 0 && id != "dialog-title" { // comes with the dialog's content
						faults = append(faults, "<"+n.Data+"> "+a.Key+" leads to "+id+", which is not there")
					}
				}
			case "href":
				if id, ok := strings.CutPrefix(a.Val, "#"); ok && ids[id] == 0 {
					faults = append(faults, "link to #"+id+", which is not there")
				}
			}
		}
		faults = append(faults, nameFaults(n, labels)...)
	})
	return faults
}

func nameFaults(n *html.Node, labels map[string]bool) []string {
	named := func() bool {
		_, labelled := attr(n, "aria-labelledby")
		label, _ := attr(n, "aria-label")
		return labelled || label != "" || strings.TrimSpace(text(n)) != ""
	}
	switch n.Data {
	case "input", "select", "textarea":
		id, _ := attr(n, "id")
		kind, _ := attr(n, "type")
		if kind != "hidden" && !labels[id] && inside(n, "label") == nil {
			return []string{"<" + n.Data + "> " + id + " has no label"}
		}
	case "button", "a", "summary", "h1", "h2", "h3", "nav", "caption":
		if !named() {
			return []string{"<" + n.Data + "> has no name"}
		}
		if (n.Data == "button" || n.Data == "a") && inside(n, "a", "button") != nil {
			return []string{"<" + n.Data + "> stands inside another control"}
		}
	case "svg":
		role, _ := attr(n, "role")
		hidden, _ := attr(n, "aria-hidden")
		if role == "img" && !named() || role == "" && hidden != "true" && inside(n, "svg") == nil {
			return []string{"<svg> is neither named nor hidden"}
		}
	case "th":
		if _, ok := attr(n, "scope"); !ok {
			return []string{"<th> has no scope: " + text(n)}
		}
	case "table":
		if n.FirstChild == nil || n.FirstChild.Data != "caption" {
			return []string{"<table> has no caption"}
		}
	case "form":
		if m, _ := attr(n, "method"); m == "" {
			if _, ok := attr(n, "action"); !ok {
				return []string{"<form> leads nowhere"}
			}
		}
	}
	return nil
}

func TestPagesAreSoundTrees(t *testing.T) {
	t.Parallel()
	for _, p := range storyPages() {
		doc := parse(t, render(t, p.page))
		for _, f := range treeFaults(doc) {
			t.Errorf("%s: %s", p.name, f)
		}
		level, h1 := 0, 0
		elements(doc, func(n *html.Node) {
			if inside(n, "dialog") != nil || len(n.Data) != 2 || n.Data[0] != 'h' || n.Data[1] < '1' || n.Data[1] > '6' {
				return
			}
			at := int(n.Data[1] - '0')
			if at == 1 {
				h1++
			}
			if at > level+1 {
				t.Errorf("%s: %q is a heading of level %d below level %d", p.name, text(n), at, level)
			}
			level = at
		})
		if h1 != 1 {
			t.Errorf("%s has %d headings of level 1, want 1", p.name, h1)
		}
		landmarks := map[string]int{}
		elements(doc, func(n *html.Node) { landmarks[n.Data]++ })
		if landmarks["main"] != 1 || p.name != "login" && (landmarks["header"] < 1 || landmarks["nav"] < 1) {
			t.Errorf("%s lacks a landmark: %v", p.name, landmarks)
		}
	}
}

// TestNothingIsRepairedByTheParser compares the tags as written with the tree that
// a browser makes of them: what stands where it must not is moved or closed early.
func TestNothingIsRepairedByTheParser(t *testing.T) {
	t.Parallel()
	for _, p := range storyPages() {
		page := render(t, p.page)
		var written, made []string
		z := html.NewTokenizer(strings.NewReader(page))
		for z.Next() != html.ErrorToken {
			if tok := z.Token(); tok.Type == html.StartTagToken || tok.Type == html.SelfClosingTagToken {
				written = append(written, tok.Data)
			}
		}
		elements(parse(t, page), func(n *html.Node) { made = append(made, n.Data) })
		if !slices.EqualFunc(written, made, strings.EqualFold) {
			at := 0
			for at < min(len(written), len(made)) && strings.EqualFold(written[at], made[at]) {
				at++
			}
			t.Errorf("%s: as written %v, as a browser reads it %v", p.name, written[max(0, at-4):min(at+3, len(written))], made[max(0, at-4):min(at+3, len(made))])
		}
	}
}

func TestEveryIconIsInTheSprite(t *testing.T) {
	t.Parallel()
	sprite, err := os.ReadFile("../static/icons.svg")
	if err != nil {
		t.Fatal(err)
	}
	have := map[string]bool{}
	for _, m := range regexp.MustCompile(`<symbol id="([^"]+)"`).FindAllSubmatch(sprite, -1) {
		have[string(m[1])] = true
	}
	used := map[string]bool{"check": true} // the script's, for what was copied
	uses := regexp.MustCompile(`icons\.[0-9a-f]+\.svg#([a-z-]+)"`)
	for _, p := range storyPages() {
		for _, m := range uses.FindAllStringSubmatch(render(t, p.page), -1) {
			used[m[1]] = true
		}
	}
	for _, l := range looks {
		used[l.icon] = true
	}
	for _, o := range outcomes {
		used[o.icon] = true
	}
	for _, i := range actionIcons {
		used[i] = true
	}
	for name := range used {
		if !have[name] {
			t.Errorf("icon %s is drawn and not in the sprite", name)
		}
	}
}
