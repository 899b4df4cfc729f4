package web

import (
	"cmp"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/reliable-job-engine/reliable-job-engine/engine"
	"github.com/reliable-job-engine/reliable-job-engine/engine/access"
)

// limited makes a person of some queues, and returns the cookie of their session.
func (w *walk) limited(name string, role access.Role, queues ...string) string {
	w.t.Helper()
	ctx, cancel := shortly()
	defer cancel()
	if _, err := access.New(access.Config{Pool: w.pool}).Create(ctx, access.UserSpec{Name: name, Password: password, Role: role, Queues: queues}, engine.Actor{Name: "test"}); err != nil {
		w.t.Fatal(err)
	}
	return w.signIn(name)
}

// visit sends a request to a route of the console, with the query and the form that
// its rule has.
func (w *walk) visit(method, route, cookie string) reply {
	w.t.Helper()
	rule := routeRules[routeKey(method, route)]
	return w.send(method, w.path(route)+rule.query, strings.NewReader(cmp.Or(rule.body, "reason=x")), "Content-Type", "application/x-www-form-urlencoded", "Sec-Fetch-Site", "same-origin", "Cookie", cookie)
}

// TestAPersonOfOtherQueuesTouchesNothing walks the console's routes as an operator and
// as an admin of the queue sms: what stands in mail is not there, and stays as it is.
func TestAPersonOfOtherQueuesTouchesNothing(t *testing.T) {
	t.Parallel()
	w := newWalk(t)
	for role, cookie := range map[string]string{"operator": w.limited("sms-operator", access.RoleOperator, "sms"), "admin": w.limited("sms-admin", access.RoleAdmin, "sms", "other")} {
		before := w.fingerprint() + fmt.Sprint(w.count("SELECT count(*) FROM operations WHERE state <> 'running'"), w.count("SELECT count(*) FROM console_users WHERE generation > 1"))
		w.eachRoute(true, func(method, path string, rule routeRule) {
			if rule.needs == isOpen {
				return
			}
			got, want := w.visit(method, path, cookie), http.StatusForbidden
			switch rule.foreign {
			case gets403, getsNever:
				if role != "operator" || rule.needs != "admin" {
					got.shows(method+" "+path, want, "You are limited to: ")
				}
			case gets404:
				want = http.StatusNotFound
			case getsAll:
				want = got.status
				if got.status >= 400 && got.status != http.StatusUnprocessableEntity {
					t.Errorf("%s %s as %s = %d %.200s, want to be let in", method, path, role, got.status, plainText(got.body))
				}
			default:
				t.Errorf("%s %s: routeRules does not say what a person of other queues gets", method, path)
			}
			if got.status != want {
				t.Errorf("%s %s as %s of other queues = %d %.200s, want %d", method, path, role, got.status, plainText(got.body), want)
			}
			if strings.Contains(got.body, short(w.dead)) && !strings.Contains(path, ":id") { // an address comes back
				t.Errorf("%s %s tells of a job of another queue", method, path)
			}
		})
		if after := w.fingerprint() + fmt.Sprint(w.count("SELECT count(*) FROM operations WHERE state <> 'running'"), w.count("SELECT count(*) FROM console_users WHERE generation > 1")); after != before {
			t.Errorf("walking as %s of other queues changed %q to %q", role, before, after)
		}
	}
	// In their own queue they are let in.
	mail := w.limited("mail-operator", access.RoleOperator, "mail")
	w.eachRoute(true, func(method, path string, rule routeRule) {
		if rule.needs == isOpen || rule.foreign == getsNever || path == "/console/*" || strings.Contains(path, "/sessions/:id") || strings.Contains(path, ":fingerprint") || strings.HasSuffix(path, "/result") || strings.HasSuffix(path, "workers/:id") {
			return
		}
		w.refill()
		if got := w.visit(method, path, mail); got.status == http.StatusForbidden || got.status == http.StatusNotFound {
			t.Errorf("%s %s in the person's own queue = %d %.200s", method, path, got.status, plainText(got.body))
		}
	})
}
