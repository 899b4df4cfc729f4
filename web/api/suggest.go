package api

// unknown says that a name is not known, and which one may have been meant.
func unknown(name string, known []string) string {
	best, distance := "", 3
	for _, k := range known {
		if d := editDistance(cut(name), k); d < distance && d < len(k) {
			best, distance = k, d
		}
	}
	if best == "" {
		return "not a known field"
	}
	return "did you mean " + best + "?"
}

// editDistance counts the letters to add, take out or change (Levenshtein).
func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		before := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := before
			if a[i] != b[j] {
				cost = 1 + min(before, row[j], row[j+1])
			}
			before, row[j+1] = row[j+1], cost
		}
	}
	return row[len(b)]
}
