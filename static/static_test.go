package static

import (
	"math"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

func get(method, path string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	Handler().ServeHTTP(w, httptest.NewRequest(method, path, nil))
	return w
}

func TestFilesAreServedForGoodUnderTheirHash(t *testing.T) {
	t.Parallel()
	for name, kind := range map[string]string{
		"app.css": "text/css; charset=utf-8", "app.js": "text/javascript; charset=utf-8", "icons.svg": "image/svg+xml; charset=utf-8",
		"htmx-4.0.1.min.js": "text/javascript; charset=utf-8", "htmx-ptag-4.0.1.min.js": "text/javascript; charset=utf-8",
	} {
		u := URL(name)
		if !regexp.MustCompile(`^/static/[a-z0-9.-]+\.[0-9a-f]{12}\.(css|js|svg)$`).MatchString(u) {
			t.Errorf("URL(%s) = %s, want a hash in it", name, u)
		}
		w := get(http.MethodGet, u)
		h := w.Header()
		if w.Code != http.StatusOK || h.Get("Content-Type") != kind || h.Get("Cache-Control") != "public, max-age=31536000, immutable" ||
			h.Get("X-Content-Type-Options") != "nosniff" || h.Get("Content-Length") != strconv.Itoa(w.Body.Len()) || w.Body.Len() == 0 {
			t.Errorf("%s = %d, %v, %d bytes", u, w.Code, h, w.Body.Len())
		}
		if head := get(http.MethodHead, u); head.Code != http.StatusOK || head.Body.Len() != 0 {
			t.Errorf("HEAD %s = %d with %d bytes", u, head.Code, head.Body.Len())
		}
	}
}

func TestOtherNamesAreNotFound(t *testing.T) {
	t.Parallel()
	for _, path := range []string{"/static/app.css", "/static/app.000000000000.css", "/static/", "/static/../static.go", "/static/vendor/htmx-LICENSE.txt", "/other"} {
		if w := get(http.MethodGet, path); w.Code != http.StatusNotFound || strings.Contains(w.Header().Get("Cache-Control"), "immutable") {
			t.Errorf("GET %s = %d, %v, want 404 that is not kept", path, w.Code, w.Header())
		}
	}
	if w := get(http.MethodPost, URL("app.css")); w.Code != http.StatusMethodNotAllowed {
		t.Errorf("POST = %d, want 405", w.Code)
	}
}

func read(t *testing.T, name string) string {
	t.Helper()
	b, err := files.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestFilesStayInBudget(t *testing.T) {
	t.Parallel()
	if n := len(read(t, "app.css")); n > 40_000 {
		t.Errorf("app.css takes %d bytes, want at most 40000", n)
	}
	js := len(read(t, "app.js")) + len(read(t, "vendor/htmx-4.0.1.min.js")) + len(read(t, "vendor/htmx-ptag-4.0.1.min.js"))
	if js > 60_000 {
		t.Errorf("the scripts take %d bytes, want at most 60000", js)
	}
}

func TestTheScriptKeepsToThePolicy(t *testing.T) {
	t.Parallel()
	js := read(t, "app.js")
	for _, bad := range []string{".innerHTML", ".outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function", "setAttribute(\"style\"", ".cssText", "localStorage"} {
		if strings.Contains(js, bad) {
			t.Errorf("app.js has %s", bad)
		}
	}
	if css := read(t, "app.css"); strings.Contains(css, "@import") || strings.Contains(css, "url(") {
		t.Error("app.css fetches something")
	}
	if got := read(t, "vendor/htmx-4.0.1.min.js"); !strings.Contains(got, `"4.0.1"`) {
		t.Error("the vendored htmx is not 4.0.1")
	}
}

// tokens are the two colours of each custom property that is written as hex.
func tokens(t *testing.T) map[string][2][3]float64 {
	t.Helper()
	list := map[string][2][3]float64{}
	for _, m := range regexp.MustCompile(`--([a-z-]+): light-dark\((#[0-9a-f]{6}), (#[0-9a-f]{6})\)`).FindAllStringSubmatch(read(t, "app.css"), -1) {
		list[m[1]] = [2][3]float64{rgb(m[2]), rgb(m[3])}
	}
	return list
}

func rgb(hex string) [3]float64 {
	n, _ := strconv.ParseUint(hex[1:], 16, 32) // the pattern lets only hex through
	return [3]float64{float64(n >> 16 & 255), float64(n >> 8 & 255), float64(n & 255)}
}

// luminance and contrast are WCAG 2.2's.
func luminance(c [3]float64) float64 {
	part := func(v float64) float64 {
		if v /= 255; v <= 0.04045 {
			return v / 12.92
		}
		return math.Pow((v+0.055)/1.055, 2.4)
	}
	return 0.2126*part(c[0]) + 0.7152*part(c[1]) + 0.0722*part(c[2])
}

func contrast(a, b [3]float64) float64 {
	x, y := luminance(a), luminance(b)
	return (max(x, y) + 0.05) / (min(x, y) + 0.05)
}

// TestColoursReachTheirRatios recomputes the table of the console's colours: on the
// ground, and at worst on the surfaces and the colour's own tint.
func TestColoursReachTheirRatios(t *testing.T) {
	t.Parallel()
	c := tokens(t)
	for _, row := range []struct {
		name, tint                 string
		light, worstL, dark, worst float64
	}{
		{"text", "", 17.4, 15.0, 15.6, 14.4}, {"muted", "", 7.2, 6.2, 8.7, 8.0}, {"control", "", 4.1, 3.5, 5.1, 4.7},
		{"accent", "accent-tint", 6.7, 5.7, 8.5, 6.6}, {"ready", "ready-tint", 7.8, 6.7, 9.6, 7.2}, {"scheduled", "scheduled-tint", 6.7, 5.7, 9.3, 7.5},
		{"retrying", "retrying-tint", 6.3, 5.4, 10.2, 7.5}, {"completed", "completed-tint", 6.1, 5.3, 9.7, 7.3}, {"dead", "dead-tint", 6.7, 5.6, 8.5, 6.9},
		{"cancelled", "cancelled-tint", 6.4, 5.5, 8.7, 6.5}, {"paused", "paused-tint", 6.8, 5.8, 9.3, 7.3},
	} {
		for theme, want := range [2][2]float64{{row.light, row.worstL}, {row.dark, row.worst}} {
			colour, known := c[row.name]
			if !known {
				t.Fatalf("app.css has no colour %s", row.name)
			}
			on := contrast(colour[theme], c["bg"][theme])
			worst := min(on, contrast(colour[theme], c["surface"][theme]), contrast(colour[theme], c["sunken"][theme]))
			if row.tint != "" {
				worst = min(worst, contrast(colour[theme], c[row.tint][theme]))
			}
			if math.Abs(on-want[0]) > 0.06 || math.Abs(worst-want[1]) > 0.06 {
				t.Errorf("%s in theme %d = %.2f, at worst %.2f, want %.1f and %.1f", row.name, theme, on, worst, want[0], want[1])
			}
			if least := map[bool]float64{true: 3, false: 4.5}[row.name == "control"]; worst < least {
				t.Errorf("%s in theme %d = %.2f at worst, want %.1f", row.name, theme, worst, least)
			}
		}
	}
	white := [3]float64{255, 255, 255}
	for _, fill := range []string{"accent", "dead"} {
		if got := contrast(white, c[fill][0]); got < 4.5 {
			t.Errorf("white on %s = %.2f", fill, got)
		}
		if got := contrast(c["bg"][1], c[fill][1]); got < 4.5 {
			t.Errorf("the ground on %s in the dark = %.2f", fill, got)
		}
	}
}
