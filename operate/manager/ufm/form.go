package ufm

import (
	"bytes"
	"io"
	"mime/multipart"
	"net/url"
)

// readMultipart reads the values of a form that browsers and curl -F send; nil if it is damaged. Files are no values
// here.
func readMultipart(text []byte, boundary string) url.Values {
	if boundary == "" {
		return nil
	}
	values := url.Values{}
	for r := multipart.NewReader(bytes.NewReader(text), boundary); ; {
		p, err := r.NextPart()
		if err == io.EOF {
			return values
		}
		if err != nil {
			return nil
		}
		v, err := io.ReadAll(p)
		if err != nil {
			return nil
		}
		if p.FormName() != "" && p.FileName() == "" {
			values.Add(p.FormName(), string(v))
		}
	}
}
