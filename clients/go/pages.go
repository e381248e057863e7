package storeclient

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"strings"
)

const (
	pageRows  = 1000
	pageAfter = "storeclient_after"
	pageLimit = "storeclient_rows"
)

// pages are those of one SELECT, asked for one after the other. Its text is not parsed, only split at
// the words that stand in no string, comment or bracket; what it means is the node's to say.
type pages struct {
	params      Params
	rows        int
	head, where string
	after       *RecordID
	over        bool
}

func newPages(selects string, params Params, rows int) (*pages, error) {
	if rows == 0 {
		rows = pageRows
	}
	if rows < 1 {
		return nil, fmt.Errorf("storeclient: a page has at least one row, not %d", rows)
	}
	for _, name := range []string{pageAfter, pageLimit} {
		if _, taken := params[name]; taken {
			return nil, fmt.Errorf("storeclient: parameter %q is what Rows names its own", name)
		}
	}
	head, where, err := splitSelect(selects)
	return &pages{params: params, rows: rows, head: head, where: where}, err
}

// next returns the script of the next page, and its parameters.
func (p *pages) next() (string, Params) {
	given := maps.Clone(p.params)
	if given == nil {
		given = Params{}
	}
	given[pageLimit] = p.rows
	var conditions []string
	if p.after != nil {
		conditions = append(conditions, "id > $"+pageAfter)
		given[pageAfter] = *p.after
	}
	if p.where != "" {
		conditions = append(conditions, "("+p.where+"\n)") // on a line of its own: the text may end in a comment
	}
	text := p.head + "\n"
	if len(conditions) > 0 {
		text += " WHERE " + strings.Join(conditions, " AND ")
	}
	return text + " ORDER BY id LIMIT $" + pageLimit, given
}

// took: a page has come.
func (p *pages) took(rows []any) error {
	p.over = len(rows) < p.rows
	if len(rows) > 0 {
		last, _ := rows[len(rows)-1].(Object)
		id, ok := last["id"].(RecordID)
		if !ok {
			return errors.New("storeclient: a SELECT that is read page by page has `id` among its fields")
		}
		p.after = &id
	}
	return nil
}

// piece is one of a text: what is passed over, a parameter among it, a bracket, an end, or a word.
var piece = regexp.MustCompile(`(?s)('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|` + "`(?:[^`\\\\]|\\\\.)*`" +
	`|--[^\n]*|//[^\n]*|#[^\n]*|/\*.*?\*/|\$\w+|[\w.:]*[.:]\w*)|([\[({])|([\])}])|(;)|([A-Za-z_]\w*)`)

var goesOn = regexp.MustCompile(`^\s*(?:$|[=!<>~+\-*/%),.?]|(?i:IN|NOT|CONTAINS|AND|OR)\b)`)

type word struct {
	text       string // in capitals
	start, end int
}

// words returns those outside of strings, comments and brackets.
func words(text string) ([]word, error) {
	var found []word
	depth := 0
	for _, at := range piece.FindAllStringSubmatchIndex(text, -1) {
		switch {
		case at[4] >= 0:
			depth++
		case at[6] >= 0:
			depth--
		case at[8] >= 0 && depth == 0:
			return nil, errors.New("storeclient: one SELECT is read page by page, without a `;`")
		case at[10] >= 0 && depth == 0:
			found = append(found, word{strings.ToUpper(text[at[10]:at[11]]), at[10], at[11]})
		}
	}
	return found, nil
}

// splitSelect returns what stands before WHERE, and its condition.
func splitSelect(text string) (head, where string, err error) {
	found, err := words(text)
	if err != nil {
		return "", "", err
	}
	if len(found) == 0 || found[0].text != "SELECT" {
		return "", "", fmt.Errorf("storeclient: what is read page by page is a SELECT, not %.40q", text)
	}
	from := -1
	for n, one := range found {
		if one.text == "FROM" {
			from = n
			break
		}
	}
	if from < 0 {
		return "", "", errors.New("storeclient: the SELECT has no FROM")
	}
	for n, one := range found {
		begins := false
		switch one.text {
		case "SPLIT", "GROUP", "HAVING", "ORDER", "LIMIT", "START", "FETCH", "TIMEOUT":
			begins = n >= from+2 && !goesOn.MatchString(text[one.end:]) // else it is a field
		case "VALUE", "DISTINCT":
			begins = n == 1
		case "ONLY":
			begins = n == from+1
		}
		if begins {
			return "", "", fmt.Errorf("storeclient: %s has no place in a SELECT that is read page by page: all of its rows come, in the order of their ids", one.text)
		}
	}
	for _, one := range found[from+1:] {
		if one.text == "WHERE" {
			return text[:one.start], text[one.end:], nil
		}
	}
	return text, "", nil
}
