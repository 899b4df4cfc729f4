package web

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"regexp"
	"runtime/debug"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/labstack/echo/v4"

	"github.com/reliable-job-engine/reliable-job-engine/web/auth"
)

const requestIDKey = "request_id"

var requestIDPattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:/+=@-]{0,127}$`)

func requestID(c echo.Context) string {
	id, _ := c.Get(requestIDKey).(string)
	return id
}

// nameRequest takes the caller's X-Request-Id if it is fit for logs and headers,
// else makes one, and echoes it.
func (s *server) nameRequest(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		id := c.Request().Header.Get(echo.HeaderXRequestID)
		if !requestIDPattern.MatchString(id) {
			made, err := uuid.NewV7()
			if err != nil {
				return fmt.Errorf("make request id: %w", err)
			}
			id = made.String()
		}
		c.Set(requestIDKey, id)
		c.Response().Header().Set(echo.HeaderXRequestID, id)
		return next(c)
	}
}

const headKey = "head"

// headAsGet runs before the router and lets it see HEAD as the GET that it asks
// about; asHead puts that right again behind it. net/http leaves the body out.
func headAsGet(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		if r := c.Request(); r.Method == http.MethodHead {
			c.Set(headKey, true)
			r.Method = http.MethodGet
		}
		return next(c)
	}
}

// asHead also lists HEAD where GET is allowed.
func asHead(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		if c.Get(headKey) != nil {
			c.Request().Method = http.MethodHead
		}
		h := c.Response().Header()
		c.Response().Before(func() {
			if allow := h.Get(echo.HeaderAllow); strings.Contains(allow, http.MethodGet) && !strings.Contains(allow, http.MethodHead) {
				h.Set(echo.HeaderAllow, allow+", "+http.MethodHead)
			}
		})
		return next(c)
	}
}

var probes = map[string]bool{"/healthz": true, "/readyz": true, auth.MetricsPath: true}

// logRequest writes one line and one measurement a request, after its answer.
func (s *server) logRequest(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		start := time.Now()
		err := next(c)
		if err != nil {
			c.Error(err)
		}
		route, status, took := c.Path(), c.Response().Status, time.Since(start)
		if route == "" {
			route = "unmatched"
		}
		method := knownMethod(c.Request().Method)
		s.metrics.Request(method, route, status, took)
		level := slog.LevelInfo
		if probes[route] {
			level = slog.LevelDebug
		}
		attrs := []slog.Attr{
			slog.String("method", method), slog.String("route", route), slog.Int("status", status),
			slog.Float64("duration_ms", float64(took.Microseconds())/1000), slog.Int64("bytes", c.Response().Size),
			slog.String("request_id", requestID(c)), slog.String("actor", auth.Caller(c).Name),
		}
		if status >= http.StatusInternalServerError {
			if !probes[route] && !errors.Is(err, context.Canceled) { // the caller went away
				level = slog.LevelError
			}
			attrs = append(attrs, slog.Any("error", err))
		}
		s.log.LogAttrs(c.Request().Context(), level, "request", attrs...)
		return nil
	}
}

// knownMethod keeps made-up methods out of labels.
func knownMethod(m string) string {
	switch m {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions:
		return m
	}
	return "OTHER"
}

// recover makes a panic of a handler an error, whose stack goes to the log.
func (s *server) recover(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) (err error) {
		defer func() {
			if p := recover(); p != nil {
				if e, ok := p.(error); ok && errors.Is(e, http.ErrAbortHandler) {
					panic(p)
				}
				err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
			}
		}()
		return next(c)
	}
}

// limitTime ends the request's context, and the reading of its body, at the limit.
func (s *server) limitTime(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		ctx, cancel := context.WithTimeout(c.Request().Context(), s.timeout)
		defer cancel()
		c.SetRequest(c.Request().WithContext(ctx))
		// A recorder in a test has no deadline to set; a connection has.
		_ = http.NewResponseController(c.Response()).SetReadDeadline(time.Now().Add(s.timeout))
		err := next(c)
		if err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) && !c.Response().Committed {
			return fmt.Errorf("%w: %w", context.DeadlineExceeded, err)
		}
		return err
	}
}
