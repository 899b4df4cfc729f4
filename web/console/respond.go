package console

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strings"
	"unicode/utf8"

	"github.com/a-h/templ"
	"github.com/labstack/echo/v4"

	"github.com/reliable-job-engine/reliable-job-engine/views"
	"github.com/reliable-job-engine/reliable-job-engine/web/auth"
)

// Policy is the content security policy of every page.
const Policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; form-action 'self'; " +
	"base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types htmx"

// headers sets what every answer of the console carries, its errors too.
func (k *Console) headers(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		setHeaders(c)
		return next(c)
	}
}

func setHeaders(c echo.Context) {
	h := c.Response().Header()
	h.Set(echo.HeaderContentSecurityPolicy, Policy)
	h.Set(echo.HeaderXContentTypeOptions, "nosniff")
	h.Set(echo.HeaderReferrerPolicy, "same-origin")
	h.Set(echo.HeaderCacheControl, "no-store")
	h.Add(echo.HeaderVary, "HX-Request, HX-Target, Cookie")
}

// isFragment tells a request of the script from a browser's own.
func isFragment(c echo.Context) bool { return c.Request().Header.Get("HX-Request") == "true" }

// target is the id of the element that asks: htmx sends "div#live".
func target(c echo.Context) string {
	t := c.Request().Header.Get("HX-Target")
	if _, id, found := strings.Cut(t, "#"); found {
		return id
	}
	return t
}

// page answers with a whole page, or with its live region where that asks.
func (v *visit) page(status int, f views.Frame, page, live templ.Component) error {
	if live != nil && isFragment(v) && target(v) == "live" {
		return v.region(f, live)
	}
	return v.render(status, page)
}

// region answers a live region. Its tag is made of what it shows less the clock;
// htmx sends back the last one, and an unchanged region is a 304.
func (v *visit) region(f views.Frame, live templ.Component) error {
	body, err := render(v.Request().Context(), live)
	if err != nil {
		return err
	}
	sum := sha256.Sum256(bytes.ReplaceAll(bytes.ReplaceAll(body, []byte(f.Now.ISO), nil), []byte(f.Now.Text), nil))
	tag := hex.EncodeToString(sum[:12])
	v.Response().Header().Set("HX-PTag", tag)
	if v.Request().Header.Get("HX-PTag") == tag {
		return v.NoContent(http.StatusNotModified)
	}
	return v.HTMLBlob(http.StatusOK, body)
}

func (v *visit) render(status int, page templ.Component) error {
	body, err := render(v.Request().Context(), page)
	if err != nil {
		return err
	}
	return v.HTMLBlob(status, body)
}

// render draws before anything is sent, so that a mistake is still an error page.
// An error page is drawn when the request's time is already over.
func render(ctx context.Context, page templ.Component) ([]byte, error) {
	var b bytes.Buffer
	if err := page.Render(context.WithoutCancel(ctx), &b); err != nil {
		return nil, fmt.Errorf("draw page: %w", err)
	}
	return b.Bytes(), nil
}

func isDeadline(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}

// The bounds of what is read of a request.
const (
	maxParam  = 512
	smallForm = 64 << 10
)

func badQuery(detail string) error { return &auth.Refusal{Code: "bad-query", Detail: detail} }

func notFound(detail string) error { return &auth.Refusal{Code: "not-found", Detail: detail} }

// query reads the parameters of a page: those that are allowed, once each, of
// plain text. Others are refused, so that a misspelt filter does not show
// everything.
func query(c echo.Context, allowed ...string) (url.Values, error) {
	q, err := url.ParseQuery(c.Request().URL.RawQuery)
	if err != nil {
		return nil, badQuery("The address has a broken query.")
	}
	known := map[string]bool{"live": true}
	for _, a := range allowed {
		known[a] = true
	}
	for name, values := range q {
		switch {
		case !known[name]:
			return nil, badQuery("This page has no parameter " + quoted(name) + ".")
		case len(values) > 1:
			return nil, badQuery("The parameter " + name + " is given more than once.")
		case !plain(values[0]):
			return nil, badQuery("The parameter " + name + " is too long or holds characters that no name has.")
		}
	}
	if live := q.Get("live"); live != "" && live != "off" {
		return nil, badQuery("The parameter live may be off.")
	}
	return q, nil
}

func quoted(s string) string { return "“" + cut(strings.ToValidUTF8(printable(s), "?"), 40) + "”" }

func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r < 0x20 || r == 0x7f {
			return '?'
		}
		return r
	}, s)
}

// plain tells whether a parameter can be the name of something.
func plain(s string) bool {
	return len(s) <= maxParam && utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool { return r < 0x20 || r == 0x7f })
}

// param is a step of the path, decoded; it is refused if it can name nothing.
func param(c echo.Context, name string) (string, error) {
	s := c.Param(name)
	if c.Request().URL.RawPath != "" {
		decoded, err := url.PathUnescape(s)
		if err != nil {
			return "", notFound("No page has this address.")
		}
		s = decoded
	}
	if s == "" || !plain(s) {
		return "", notFound("No page has this address.")
	}
	return s, nil
}

// form reads a form of at most limit bytes.
func (k *Console) form(c echo.Context, limit int64) (url.Values, error) {
	r := c.Request()
	kind, _, err := mime.ParseMediaType(r.Header.Get(echo.HeaderContentType))
	if r.ContentLength != 0 && (err != nil || kind != echo.MIMEApplicationForm) {
		return nil, &auth.Refusal{Code: "unsupported-media-type", Detail: "Send a form, as a page does."}
	}
	body, err := io.ReadAll(http.MaxBytesReader(c.Response(), r.Body, limit))
	var over *http.MaxBytesError
	if errors.As(err, &over) {
		return nil, &auth.Refusal{Code: "payload-too-large", Detail: "The form is larger than " + size(limit) + "."}
	}
	if err != nil {
		c.Response().Header().Set(echo.HeaderConnection, "close")
		return nil, auth.ReadError(err, "bad-query")
	}
	values, err := url.ParseQuery(string(body))
	if err != nil {
		return nil, badQuery("The form was not understood.")
	}
	return values, nil
}
