package views

import (
	"reflect"
	"strings"
	"testing"

	"github.com/a-h/templ"
	"golang.org/x/net/html"
)

// hostile are texts that become active where one of them is not escaped.
var hostile = []string{
	`<script>alert(1)</script>`, `"><img src=x onerror=alert(1)>`, `' onmouseover='alert(1)`, `" autofocus onfocus="alert(1)" x="`,
	`</textarea><script>alert(1)</script>`, `</title><script>alert(1)</script>`, `</time><svg onload=alert(1)>`, `<!--`, `]]><b onclick=alert(1)>`,
	`<template hx type="partial" hx-target="body"><b>x</b></template>`, `<hx-partial hx-target="body">x</hx-partial>`, `<div hx-get="/x" hx-trigger="load">`,
	`javascript:alert(1)`, ` JaVaScRiPt:alert(1)`, "java\nscript:alert(1)", `data:text/html,<script>alert(1)</script>`, `{{ constructor }}`, "\x00<b>", "\u202etxt.exe", `&lt;script&gt;`,
}

// fill puts s into every text that v can hold, and makes each list and pointer
// hold something.
func fill(v reflect.Value, s string, depth int) {
	switch v.Kind() {
	case reflect.String:
		v.SetString(s)
	case reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i), s, depth)
		}
	case reflect.Slice:
		if depth > 6 {
			return
		}
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		for i := range 2 {
			fill(v.Index(i), s, depth+1)
		}
	case reflect.Pointer:
		if depth > 6 {
			return
		}
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), s, depth+1)
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		val := reflect.New(v.Type().Elem()).Elem()
		fill(val, s, depth+1)
		for _, k := range []string{"name", "oldest", "count", "first", "last", "in", "failed"} {
			v.SetMapIndex(reflect.ValueOf(k), val)
		}
	case reflect.Float64:
		v.SetFloat(0.5)
	case reflect.Int, reflect.Int64:
		v.SetInt(3)
	}
}

func hostilePage[M any](view func(M) templ.Component, fix func(*M)) func(string) templ.Component {
	return func(s string) templ.Component {
		var m M
		fill(reflect.ValueOf(&m).Elem(), s, 0)
		fix(&m)
		return view(m)
	}
}

// base keeps the one text that comes from the settings and not from data.
func base(f *Frame) { f.Base = "/console" }

func hostilePages() map[string]func(string) templ.Component {
	return map[string]func(string) templ.Component{
		"overview": hostilePage(OverviewPage, func(m *Overview) { base(&m.Frame) }), "overview live": hostilePage(OverviewLive, func(m *Overview) { base(&m.Frame) }),
		"jobs": hostilePage(JobsPage, func(m *JobsList) { base(&m.Frame); m.Empty = nil }), "jobs empty": hostilePage(JobsPage, func(m *JobsList) { base(&m.Frame); m.Rows = nil }),
		"job": hostilePage(JobPage, func(m *Job) { base(&m.Frame) }), "queues": hostilePage(QueuesPage, func(m *Queues) { base(&m.Frame) }), "queue": hostilePage(QueuePage, func(m *Queue) { base(&m.Frame) }),
		"types": hostilePage(TypesPage, func(m *Types) { base(&m.Frame) }), "type": hostilePage(TypePage, func(m *Type) { base(&m.Frame) }),
		"groups": hostilePage(DeadLettersPage, func(m *DeadLetters) { base(&m.Frame); m.View = "groups" }), "dead": hostilePage(DeadLettersPage, func(m *DeadLetters) { base(&m.Frame); m.View = "jobs"; m.Rows[0].Done = nil }),
		"group": hostilePage(DeadGroupPageView, func(m *DeadGroupPage) { base(&m.Frame) }), "workers": hostilePage(WorkersPage, func(m *Workers) { base(&m.Frame) }), "worker": hostilePage(WorkerPage, func(m *Worker) { base(&m.Frame) }),
		"audit": hostilePage(AuditPage, func(m *Audit) { base(&m.Frame) }), "new job": hostilePage(NewJobPage, func(m *NewJob) { base(&m.Frame) }), "system": hostilePage(SystemPage, func(m *System) { base(&m.Frame) }),
		"help": hostilePage(HelpPage, func(m *Help) { base(&m.Frame) }), "login": hostilePage(LoginPage, func(m *Login) { base(&m.Frame) }), "confirm": hostilePage(ConfirmPage, func(m *Confirm) { base(&m.Frame) }),
		"dialog": hostilePage(ConfirmDialog, func(m *Confirm) { base(&m.Frame) }), "error": hostilePage(ErrorPageView, func(m *ErrorPage) { base(&m.Frame) }),
		"users": hostilePage(UsersPage, func(m *Users) { base(&m.Frame) }), "user": hostilePage(UserPage, func(m *User) { base(&m.Frame) }), "tokens": hostilePage(TokensPage, func(m *Tokens) { base(&m.Frame) }),
		"new token": hostilePage(NewTokenPage, func(m *NewToken) { base(&m.Frame) }), "account": hostilePage(AccountPage, func(m *Account) { base(&m.Frame) }),
		"posted actions": hostilePage(func(m Job) templ.Component { return JobPage(m) }, func(m *Job) {
			base(&m.Frame)
			for i := range m.Actions {
				m.Actions[i].Post = true
			}
		}),
		"posted row": hostilePage(func(r DeadRow) templ.Component {
			r.Actions[0].Post = true
			return DeadRowSwap(Frame{Base: "/console"}, r, false, Flash{Text: r.Done})
		}, func(*DeadRow) {}),
	}
}

// shape is the tree of a page without its texts: what a hostile text must not change.
func shape(doc *html.Node) string {
	var b strings.Builder
	elements(doc, func(n *html.Node) {
		b.WriteString(n.Data)
		for _, a := range n.Attr {
			b.WriteString(" " + a.Key)
		}
		b.WriteByte('\n')
	})
	return b.String()
}

func TestNoTextOfAnyModelBecomesMarkup(t *testing.T) {
	t.Parallel()
	for name, page := range hostilePages() {
		harmless := shape(parse(t, render(t, page("harmless"))))
		for _, s := range hostile {
			doc := parse(t, render(t, page(s)))
			for _, f := range activeFaults(doc) {
				t.Errorf("%s with %q: %s", name, s, f)
			}
			if got := shape(doc); got != harmless {
				t.Errorf("%s with %q is another tree than with a harmless text: %s", name, s, firstDifference(harmless, got))
			}
		}
	}
}

func firstDifference(a, b string) string {
	x, y := strings.Split(a, "\n"), strings.Split(b, "\n")
	for i := range min(len(x), len(y)) {
		if x[i] != y[i] {
			return "want " + x[i] + ", got " + y[i]
		}
	}
	return "one is longer"
}
