package engine

import (
	"crypto/sha256"
	"encoding/hex"
	"regexp"
	"strings"
)

// What differs between two failures of one cause, and what stands for it.
var fingerprintRules = []struct {
	pattern *regexp.Regexp
	to      string
}{
	{regexp.MustCompile(`(?i)\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b`), "<id>"},
	{regexp.MustCompile(`\b\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}(:\d{2}(\.\d+)?)?(Z|[+-]\d{2}:?\d{2})?\b`), "<time>"},
	{regexp.MustCompile(`\b\d{1,3}(\.\d{1,3}){3}(:\d+)?\b`), "<address>"},
	{regexp.MustCompile(`(?i)\[[0-9a-f:]+\](:\d+)?`), "<address>"},
	{regexp.MustCompile(`"(?:[^"\\]|\\.)*"|'[^']*'|` + "`[^`]*`"), "<text>"},
	{regexp.MustCompile(`(?i)\b0x[0-9a-f]+\b|\b[0-9a-f]{12,}\b`), "<hex>"},
	{regexp.MustCompile(`[-+]?\d+(\.\d+)?`), "<n>"},
}

// fingerprint groups failures of one cause. Its first part is the version of
// this rule, so that groups made by another one stay apart.
func fingerprint(jobType, class, message, stack string) string {
	for _, r := range fingerprintRules {
		message = r.pattern.ReplaceAllString(message, r.to)
	}
	sum := sha256.Sum256([]byte(strings.Join([]string{jobType, class, message, topFrame(stack)}, "\x00")))
	return "v1:" + hex.EncodeToString(sum[:8])
}

var closureSuffix = regexp.MustCompile(`(\.func\d+|\.\d+|\[\.\.\.\])+$`)

// topFrame is the function that panicked: the first frame under the panic that
// is neither the runtime's nor the engine's. Lines are left out, since they
// move with every edit.
func topFrame(stack string) string {
	_, below, found := strings.Cut(stack, "\npanic(")
	if !found {
		below = stack
	}
	for _, line := range strings.Split(below, "\n")[1:] {
		if line == "" || line[0] == '\t' || strings.HasPrefix(line, "runtime.") || strings.HasPrefix(line, "panic(") ||
			strings.HasPrefix(line, "goroutine ") || strings.HasPrefix(line, "created by ") || strings.HasPrefix(line, "\t") {
			continue
		}
		name, _, _ := strings.Cut(line, "(0x")
		if i := strings.LastIndex(name, "("); i > 0 && strings.HasSuffix(name, ")") && !strings.Contains(name[i:], "*") {
			name = name[:i]
		}
		if name != "" {
			return closureSuffix.ReplaceAllString(name, "")
		}
	}
	return ""
}
