// Package logging sets up the log of the three binaries: JSON or text lines that
// each carry time, level, msg, source, service and version.
package logging

import (
	"io"
	"log/slog"
	"path"
	"runtime/debug"
	"strconv"
	"strings"
	"time"
)

// Options say how lines look. Service and Version stand on every line.
type Options struct {
	Level   slog.Leveler // lowest level written; nil is info
	Format  string       // json, or anything else for text
	Service string       // server, worker or jobctl
	Version string
}

// New returns a logger that writes to w, one line per Write. It is safe for use
// by several goroutines. Times are in UTC. What looks like a secret is replaced,
// see [scrub].
func New(w io.Writer, o Options) *slog.Logger {
	ho := &slog.HandlerOptions{AddSource: true, Level: o.Level, ReplaceAttr: replace}
	var h slog.Handler = slog.NewTextHandler(w, ho)
	if o.Format == "json" {
		h = slog.NewJSONHandler(w, ho)
	}
	return slog.New(h).With("service", o.Service, "version", o.Version)
}

// replace is applied to every attribute of every line.
func replace(groups []string, a slog.Attr) slog.Attr {
	if len(groups) == 0 {
		switch v := a.Value.Any().(type) {
		case *slog.Source:
			return slog.String(slog.SourceKey, short(v))
		case time.Time:
			if a.Key == slog.TimeKey {
				return slog.Time(slog.TimeKey, v.UTC())
			}
		}
	}
	if isSecretName(a.Key) {
		if a.Value.Kind() == slog.KindString && a.Value.String() == "" {
			return a
		}
		return slog.String(a.Key, redacted)
	}
	if err, ok := a.Value.Any().(error); ok {
		return slog.String(a.Key, scrub(err.Error()))
	}
	if a.Value.Kind() == slog.KindString && mayHoldSecret(a.Value.String()) {
		return slog.String(a.Key, scrub(a.Value.String()))
	}
	return a
}

// modulePath is where this module's packages begin.
const modulePath = "github.com/reliable-job-engine/reliable-job-engine/"

// mainPackage is the path of the running program's main package, whose functions
// are called just main.x.
var mainPackage = func() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		return info.Path
	}
	return ""
}()

// short is a place in this module as "engine/claim.go:87", whatever machine and
// folder it was built in: the folder is taken from the function's package.
func short(s *slog.Source) string {
	pkg := packageOf(s.Function)
	if pkg == "main" {
		pkg = mainPackage
	}
	pkg = strings.TrimSuffix(strings.TrimPrefix(pkg, modulePath), "_test")
	return path.Join(pkg, path.Base(s.File)) + ":" + strconv.Itoa(s.Line)
}

// packageOf is "a.b/c" of "a.b/c.(*T).m.func1".
func packageOf(function string) string {
	slash := strings.LastIndexByte(function, '/') + 1
	pkg, _, _ := strings.Cut(function[slash:], ".")
	return function[:slash] + pkg
}
