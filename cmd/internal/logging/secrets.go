package logging

import (
	"regexp"
	"strings"
)

const redacted = "[redacted]"

// isSecretName says that nothing under this key is for the log. A fencing token
// is a number that operators need, so "token" counts only as a whole word.
func isSecretName(key string) bool {
	switch strings.ToLower(key) {
	case "password", "secret", "token", "authorization", "cookie", "api_key", "signing_key", "payload", "dsn", "database_url":
		return true
	}
	return false
}

var (
	apiToken    = regexp.MustCompile(`rje_[A-Za-z0-9_-]{16,}`)
	signingKey  = regexp.MustCompile(`whsec_[A-Za-z0-9+/=]{8,}`)
	urlPassword = regexp.MustCompile(`(://[^:/?#\s]*):[^/?#\s]*@`)
	keyPassword = regexp.MustCompile(`(?i)\b(password)=('[^']*'|[^\s&'"]+)`)
)

// mayHoldSecret is the cheap question before scrub's expressions.
func mayHoldSecret(s string) bool {
	return strings.Contains(s, "rje_") || strings.Contains(s, "whsec_") || strings.Contains(s, "://") ||
		strings.Contains(s, "assword") || strings.Contains(s, "ASSWORD")
}

// scrub takes out of a text what is a secret by its shape: API tokens, webhook
// signing keys, and passwords in addresses, which errors of libraries may quote.
// It is the last net: secrets are of a type that does not print in the first place.
func scrub(s string) string {
	if !mayHoldSecret(s) {
		return s
	}
	s = apiToken.ReplaceAllString(s, "rje_"+redacted)
	s = signingKey.ReplaceAllString(s, "whsec_"+redacted)
	s = urlPassword.ReplaceAllString(s, "${1}:"+redacted+"@")
	return keyPassword.ReplaceAllString(s, "${1}="+redacted)
}
