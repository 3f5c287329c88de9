/* The page's files as bytes of the program, named in gateway/page_files.h. */
        .macro bundle name, path
        .global page_\name, page_\name\()_end
page_\name:
        .incbin "\path"
page_\name\()_end:
        .byte 0
        .endm

        .section .rodata
        bundle html, "gateway/page/index.html"
        bundle css, "gateway/page/page.css"
        bundle js, "gateway/page/page.js"
        bundle xterm_js, "gateway/page/vendor/xterm.mjs"
        bundle xterm_css, "gateway/page/vendor/xterm.css"
        bundle fit_js, "gateway/page/vendor/addon-fit.mjs"
        bundle openapi, "gateway/openapi.json"
        .section .note.GNU-stack, "", @progbits
