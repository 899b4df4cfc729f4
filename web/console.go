package web

import (
	"errors"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/labstack/echo/v4"

	"github.com/reliable-job-engine/reliable-job-engine/views"
	"github.com/reliable-job-engine/reliable-job-engine/web/api"
	"github.com/reliable-job-engine/reliable-job-engine/web/auth"
	"github.com/reliable-job-engine/reliable-job-engine/web/console"
)

// openConsole makes the console, if there is one, and returns how the API's callers
// are known. Pages have sessions instead of tokens.
func (s *server) openConsole(c Config, guard *auth.Guard) (echo.MiddlewareFunc, error) {
	requireToken := echo.MiddlewareFunc(guard.RequireToken)
	var signIn console.SignIn
	if c.Accounts != nil {
		sessions, err := auth.NewSessions(auth.SessionsConfig{
			Accounts: c.Accounts, Mode: c.AuthMode, Development: c.Development, Addr: c.Addr, PublicURL: c.PublicURL,
			ClientAddress: guard.ClientAddress, RequestID: requestID, Log: c.Log,
		})
		if err != nil {
			return nil, err
		}
		requireToken, signIn = sessions.RequireToken(guard), sessions
	}
	if c.Console == nil {
		return requireToken, nil
	}
	if signIn == nil && !(c.Development && onLoopback(c.Addr)) {
		return nil, errors.New("the console would be open to everybody: it needs accounts to sign in")
	}
	read, ok := c.Read.(console.Reader)
	if !ok {
		return nil, errors.New("the console needs a Read that is an inspect.Reader")
	}
	own := *c.Console
	own.Engine, own.Read, own.Acts, own.Log, own.SignIn = c.Engine, read, c.Metrics, c.Log, signIn
	own.People, _ = c.Accounts.(console.People) // without them the pages about access are left out
	own.Tokens, _ = c.Tokens.(console.Tokens)
	own.JobJSON, own.ClientAddress, own.RequestID, own.Problems = api.JobBody, guard.ClientAddress, requestID, helpProblems()
	if own.Version == "" {
		own.Version = c.Build.Version
	}
	if own.Build == nil {
		own.Build = []console.Setting{
			{Name: "Version", Value: c.Build.Version}, {Name: "Commit", Value: c.Build.Commit}, {Name: "Built", Value: c.Build.BuiltAt}, {Name: "Go", Value: c.Build.Go},
		}
	}
	s.console = console.New(own)
	return s.exceptConsole(requireToken), nil
}

func onLoopback(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return false
	}
	a, err := netip.ParseAddr(host)
	return strings.EqualFold(host, "localhost") || err == nil && a.Unmap().IsLoopback()
}

// exceptConsole lets the console's paths and the way to it pass: they ask for a
// session themselves.
func (s *server) exceptConsole(ask echo.MiddlewareFunc) echo.MiddlewareFunc {
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		asked := ask(next)
		return func(c echo.Context) error {
			if c.Path() == "/" || s.console.Owns(c.Path()) {
				return next(c)
			}
			return asked(c)
		}
	}
}

// failPage answers an error of the console with a page.
func (s *server) failPage(c echo.Context, p problem) bool {
	if s.console == nil || !s.console.Owns(c.Request().URL.Path) {
		return false
	}
	if err := s.console.Fail(c, console.Problem{Status: p.Status, Code: p.Code, Title: p.Title, Detail: p.Detail}); err != nil {
		s.log.WarnContext(c.Request().Context(), "error page not drawn", "error", err, "request_id", requestID(c))
		return c.Response().Committed
	}
	return true
}

// helpProblems are the API's problems, as the help page explains them.
func helpProblems() []views.HelpProblem {
	list := make([]views.HelpProblem, 0, len(codes))
	for code, known := range codes {
		list = append(list, views.HelpProblem{Code: code, Status: strconv.Itoa(known.status), Title: known.title, Text: whatToDo(code, known.status)})
	}
	slices.SortFunc(list, func(a, b views.HelpProblem) int { return strings.Compare(a.Code, b.Code) })
	return list
}

// whatToDo is the advice for a problem.
func whatToDo(code string, status int) string {
	switch code {
	case "validation-failed":
		return "errors[] names each field by its pointer; mend them and send again."
	case "idempotency-key-reused":
		return "job_id holds the key. Use a new key for other content."
	case "idempotency-key-in-flight":
		return "Wait as long as Retry-After says and repeat: the first call's answer comes back."
	case "not-cancellable":
		return "status is the job's state now. Only a job that waits can be cancelled."
	case "not-dead", "already-replayed":
		return "status is the job's state now. Somebody was there before."
	case "payload-too-large":
		return "Keep large data elsewhere and put its address into the payload."
	case "request-timeout":
		return "Nothing was done. Send the whole body at once, on a new connection; REQUEST_TIMEOUT is the limit."
	case "precondition-required", "precondition-failed":
		return "Read the job again, and send its ETag as If-Match."
	case "rate-limited":
		return "Wait as long as Retry-After says. API_RATE_LIMIT is the limit; each job of POST /api/v1/jobs/bulk counts."
	case "unsupported-media-type":
		return "Send Content-Type: application/json, without Content-Encoding."
	case "unauthenticated":
		return "Send a token as Authorization: Bearer. jobctl tokens create makes one, jobctl tokens list tells which are good."
	case "forbidden":
		return "The detail says what is not allowed; scope, if there, is the one that the token lacks."
	}
	switch {
	case status == http.StatusServiceUnavailable:
		return "Wait as long as Retry-After says and repeat the call under the same Idempotency-Key."
	case status >= http.StatusInternalServerError:
		return "The request id finds the reason in the server's log."
	}
	return "The detail says what was expected."
}
