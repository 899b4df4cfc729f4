package config

import (
	"encoding/base64"
	"log/slog"
	"net"
	"net/mail"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5/pgconn"
)

// kind is how one sort of value is parsed and what is allowed of it.
type kind struct {
	want  string
	parse func(r *reader, raw string) bool // false: raw is not what want says
}

// into makes a kind of a pure parser and the place its result goes to.
func into[T any](want string, to func(*Config) *T, parse func(string) (T, bool)) kind {
	return kind{want, func(r *reader, raw string) bool {
		v, ok := parse(raw)
		if ok {
			*to(r.cfg) = v
		}
		return ok
	}}
}

func text(to func(*Config) *string) kind {
	return into("must be a text", to, func(raw string) (string, bool) { return raw, true })
}

func secret(to func(*Config) *Secret) kind {
	return into("must be a text without spaces at its ends or line breaks", to, func(raw string) (Secret, bool) {
		return Secret(raw), strings.TrimSpace(raw) == raw && !strings.ContainsAny(raw, "\r\n\x00")
	})
}

func choice[T ~string](to func(*Config) *T, allowed ...T) kind {
	return into("must be "+orList(allowed), to, func(raw string) (T, bool) {
		for _, a := range allowed {
			if raw == string(a) {
				return a, true
			}
		}
		return "", false
	})
}

func orList[T ~string](words []T) string {
	var b strings.Builder
	for i, w := range words {
		switch {
		case i > 0 && i == len(words)-1:
			b.WriteString(" or ")
		case i > 0:
			b.WriteString(", ")
		}
		b.WriteString(string(w))
	}
	return b.String()
}

func boolean(to func(*Config) *bool) kind {
	return into("must be true or false", to, func(raw string) (bool, bool) {
		v, err := strconv.ParseBool(raw)
		return v, err == nil
	})
}

func integer(low, high int, to func(*Config) *int) kind {
	return into("must be a whole number from "+strconv.Itoa(low)+" to "+strconv.Itoa(high), to, whole(low, high))
}

func whole(low, high int) func(string) (int, bool) {
	return func(raw string) (int, bool) {
		n, err := strconv.Atoi(raw)
		return n, err == nil && n >= low && n <= high
	}
}

func duration(low, high time.Duration, to func(*Config) *time.Duration) kind {
	want := "must be a duration with its unit, such as 30s, 5m or 1h30m, from " + short(low) + " to " + short(high)
	return into(want, to, func(raw string) (time.Duration, bool) {
		d, err := time.ParseDuration(raw)
		return d, err == nil && d >= low && d <= high
	})
}

// short prints 24h where time.Duration prints 24h0m0s.
func short(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

func retention(to func(*Config) *time.Duration) kind {
	want := "must be never, or a duration with its unit, such as 168h, from 1s to " + short(100*year)
	return into(want, to, func(raw string) (time.Duration, bool) {
		if raw == "never" {
			return 0, true
		}
		d, err := time.ParseDuration(raw)
		return d, err == nil && d >= time.Second && d <= 100*year
	})
}

func level(to func(*Config) *slog.Level) kind {
	levels := map[string]slog.Level{"debug": slog.LevelDebug, "info": slog.LevelInfo, "warn": slog.LevelWarn, "error": slog.LevelError}
	return into("must be debug, info, warn or error", to, func(raw string) (slog.Level, bool) {
		l, ok := levels[strings.ToLower(raw)]
		return l, ok
	})
}

func rate(to func(*Config) *Rate) kind {
	units := map[string]time.Duration{"s": time.Second, "m": time.Minute, "h": time.Hour}
	return into("must be off, or requests per s, m or h, such as 6000/m", to, func(raw string) (Rate, bool) {
		if raw == "off" {
			return Rate{}, true
		}
		count, unit, _ := strings.Cut(raw, "/")
		n, ok := whole(1, 1_000_000_000)(count)
		return Rate{n, units[unit]}, ok && units[unit] > 0
	})
}

func prefetch(to func(*Config) *int) kind {
	return into("must be auto, or a whole number from 0 to 1000", to, func(raw string) (int, bool) {
		if raw == "auto" {
			return AutoPrefetch, true
		}
		return whole(0, 1000)(raw)
	})
}

// listOf splits at commas. Every item must pass.
func listOf[T any](want string, to func(*Config) *[]T, item func(string) (T, bool)) kind {
	return into(want, to, func(raw string) ([]T, bool) {
		var list []T
		for word := range strings.SplitSeq(raw, ",") {
			v, ok := item(strings.TrimSpace(word))
			if !ok {
				return nil, false
			}
			list = append(list, v)
		}
		return list, true
	})
}

// or lets one word stand for an empty list.
func or[T any](word string, k kind, to func(*Config) *[]T) kind {
	return kind{k.want, func(r *reader, raw string) bool {
		if raw == word {
			*to(r.cfg) = nil
			return true
		}
		return k.parse(r, raw)
	}}
}

var queueName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[^\s*,]{1,255}$`) })

func queues(to func(*Config) *[]string) kind {
	return or("*", listOf("must be *, or queue names with commas between", to, func(w string) (string, bool) {
		return w, queueName().MatchString(w)
	}), to)
}

func prefixes(to func(*Config) *[]netip.Prefix) kind {
	want := "must be none, or addresses and ranges with commas between, such as 10.0.0.0/8,192.0.2.7"
	return or("none", listOf(want, to, prefix), to)
}

func prefix(word string) (netip.Prefix, bool) {
	if a, err := netip.ParseAddr(word); err == nil {
		return netip.PrefixFrom(a, a.BitLen()), true
	}
	p, err := netip.ParsePrefix(word)
	return p, err == nil
}

// hostName is a DNS name in letters, digits, hyphens and dots; underscores occur in compose files.
var hostName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9_]([A-Za-z0-9_.-]{0,251}[A-Za-z0-9_])?$`) })

func isHost(word string) bool {
	_, err := netip.ParseAddr(word)
	return err == nil || hostName().MatchString(word)
}

func host(to func(*Config) *string) kind {
	return into("must be a host name or an address, without port", to, func(raw string) (string, bool) {
		return raw, isHost(raw)
	})
}

func hosts(to func(*Config) *[]string) kind {
	want := "must be host names, *.suffixes, addresses or ranges with commas between, without ports"
	return listOf(want, to, func(w string) (string, bool) {
		_, ok := prefix(w)
		return w, ok || isHost(strings.TrimPrefix(w, "*."))
	})
}

func address(to func(*Config) *string) kind {
	return into("must be host:port or :port, such as :9090", to, func(raw string) (string, bool) {
		h, p, err := net.SplitHostPort(raw)
		if err != nil || (h != "" && !isHost(h)) {
			return "", false
		}
		_, ok := whole(0, 65535)(p)
		return raw, ok
	})
}

func baseURL(to func(*Config) *string) kind {
	want := "must be an address such as https://jobs.example.com, without user, password, query or fragment"
	return into(want, to, func(raw string) (string, bool) {
		u, err := url.Parse(raw)
		ok := err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Hostname() != "" &&
			u.User == nil && u.RawQuery == "" && u.Fragment == ""
		return strings.TrimRight(raw, "/"), ok
	})
}

func mailbox(to func(*Config) *string) kind {
	return into("must be a mail address, such as jobs@example.com", to, func(raw string) (string, bool) {
		_, err := mail.ParseAddress(raw)
		return raw, err == nil
	})
}

var tokenShape = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^rje_[A-Za-z0-9_-]{32,252}$`) })

func apiToken(to func(*Config) *Secret) kind {
	want := "must be rje_ and then 32 to 252 letters, digits, _ or -; `openssl rand -hex 32` makes the second part"
	return into(want, to, func(raw string) (Secret, bool) { return Secret(raw), tokenShape().MatchString(raw) })
}

// newPassword has the rules of the accounts, so that a bad one stops the start
// before anything is opened.
func newPassword(to func(*Config) *Secret) kind {
	want := "must have at least 12 characters, at most 1024 bytes and no line break, and not be a placeholder"
	return into(want, to, func(raw string) (Secret, bool) {
		return Secret(raw), utf8.ValidString(raw) && utf8.RuneCountInString(raw) >= 12 && len(raw) <= 1024 &&
			!strings.ContainsAny(raw, "\r\n\x00") && raw != PasswordPlaceholder
	})
}

func signingKeys(to func(*Config) *[]Secret) kind {
	want := "must be keys with commas between, each whsec_ and then 24 to 64 bytes as base64"
	return listOf(want, to, func(w string) (Secret, bool) {
		encoded, found := strings.CutPrefix(w, "whsec_")
		key, err := base64.StdEncoding.DecodeString(encoded)
		return Secret(w), found && err == nil && len(key) >= 24 && len(key) <= 64
	})
}

// postgresURL asks pgx, which knows several hosts, key=value form and sslmode.
// Its error is dropped, since it may quote the password.
func postgresURL(to func(*Config) *Secret) kind {
	want := "must be an address such as postgres://user:password@host:5432/name?sslmode=verify-full, its special characters escaped, its certificate files readable"
	return into(want, to, func(raw string) (Secret, bool) {
		_, err := pgconn.ParseConfig(raw)
		return Secret(raw), err == nil
	})
}

var pathPattern = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^(/[A-Za-z0-9._~-]+)+$`) })

// basePath is a path prefix. The API's own paths are taken.
func basePath(to func(*Config) *string) kind {
	return into("must be a path such as /console, not one of the API's, without a slash at its end", to, func(raw string) (string, bool) {
		first, _, _ := strings.Cut(strings.TrimPrefix(raw, "/"), "/")
		taken := slices.Contains([]string{"api", "jobs", "healthz", "readyz", "metrics", "help"}, first)
		return raw, pathPattern().MatchString(raw) && !taken && !strings.Contains(raw, "/.")
	})
}

func words(to func(*Config) *[]string) kind {
	return or("none", listOf("must be none, or words with commas between", to, func(w string) (string, bool) {
		return w, w != ""
	}), to)
}
