// Package static holds the console's style sheet, script, icons and htmx, and
// serves them under names that carry a hash of their content.
package static

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"net/http"
	"path"
	"strconv"
	"strings"
)

// files lists what is served. vendor/ holds htmx 4.0.1 as its authors publish it,
// with its licence.
//
//go:embed app.css app.js icons.svg vendor/htmx-4.0.1.min.js vendor/htmx-ptag-4.0.1.min.js
var files embed.FS

// Prefix is where the handler expects to be mounted, below the console's base
// path.
const Prefix = "/static/"

type asset struct {
	body        []byte
	contentType string
}

// contentTypes are fixed here: the table of the machine that serves may differ,
// and nosniff makes a wrong one fatal.
var contentTypes = map[string]string{
	".css": "text/css; charset=utf-8",
	".js":  "text/javascript; charset=utf-8",
	".svg": "image/svg+xml; charset=utf-8",
}

var (
	urls   = map[string]string{} // file's name -> path below the base path
	assets = map[string]asset{}  // name in the path -> what it holds
)

func init() {
	for _, name := range []string{"app.css", "app.js", "icons.svg", "vendor/htmx-4.0.1.min.js", "vendor/htmx-ptag-4.0.1.min.js"} {
		body, err := files.ReadFile(name)
		if err != nil {
			panic(fmt.Sprintf("static: read embedded %s: %v", name, err))
		}
		sum := sha256.Sum256(body)
		base, ext := path.Base(name), path.Ext(name)
		hashed := strings.TrimSuffix(base, ext) + "." + hex.EncodeToString(sum[:6]) + ext
		urls[base] = Prefix + hashed
		assets[hashed] = asset{body: body, contentType: contentTypes[ext]}
	}
}

// URL returns the path of a file below the console's base path, with the hash of
// its content: "/static/app.3f2a9c1d04be.css". It panics on a name that is not
// served, a mistake in the program.
func URL(name string) string {
	u, ok := urls[name]
	if !ok {
		panic("static: no file " + name)
	}
	return u
}

// Handler serves the files at their [URL]. What it is asked for must begin with
// [Prefix]: a console mounted deeper strips its base path first. A name without
// the right hash is 404, so that what a cache keeps for a year is never wrong.
func Handler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.Header().Set("Allow", "GET, HEAD")
			http.Error(w, "method not allowed", http.StatusMethodNotAllowed)
			return
		}
		name, ok := strings.CutPrefix(r.URL.Path, Prefix)
		a, known := assets[name]
		if !ok || !known {
			http.NotFound(w, r)
			return
		}
		h := w.Header()
		h.Set("Content-Type", a.contentType)
		h.Set("Content-Length", strconv.Itoa(len(a.body)))
		h.Set("Cache-Control", "public, max-age=31536000, immutable")
		h.Set("X-Content-Type-Options", "nosniff")
		if r.Method == http.MethodGet {
			_, _ = w.Write(a.body) // a reader that hung up is its own affair
		}
	})
}
