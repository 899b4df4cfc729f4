package db

import (
	"fmt"
	"net/url"
	"regexp"
	"strings"
)

// hidden stands where a password was.
const hidden = "xxxxx"

var passwordSetting = regexp.MustCompile(`(?i)((?:^|[?&\s])(?:ssl)?password\s*=\s*)('(?:[^'\\]|\\.)*'|[^&\s]*)`)

// RedactURL returns url without its passwords, fit for a log. It takes any text:
// of one that is no proper address it rather hides too much.
func RedactURL(url string) string {
	return passwordSetting.ReplaceAllString(redactUserinfo(url), "${1}"+hidden)
}

func redactUserinfo(text string) string {
	scheme, rest, found := strings.Cut(text, "://")
	if !found {
		return text
	}
	// A password with an unescaped slash or question mark ends the authority too
	// early; then the last @ of the whole text is the only safe end of userinfo.
	end := strings.LastIndex(rest, "@")
	if u, err := url.Parse(text); err == nil {
		authority, _, _ := strings.Cut(rest, "/")
		authority, _, _ = strings.Cut(authority, "?")
		if u.User == nil && !strings.Contains(authority, ":") {
			return text
		}
		if u.User != nil {
			end = strings.LastIndex(authority, "@")
		}
	}
	if end < 0 {
		return text
	}
	user, _, found := strings.Cut(rest[:end], ":")
	if !found {
		return text
	}
	return scheme + "://" + user + ":" + hidden + rest[end:]
}

// badURL explains an address that can't be read. pgx's text is left out: what it
// quotes of an odd address may hold a piece of the password.
func badURL(url string, err error) error {
	reason := "it must look like postgres://user:password@host:5432/database, with special characters in the password percent-encoded"
	if strings.Contains(err.Error(), "sslmode") {
		reason = "its sslmode or a certificate named in it can't be used"
	}
	return fmt.Errorf("read database address %q: %s", RedactURL(url), reason)
}
