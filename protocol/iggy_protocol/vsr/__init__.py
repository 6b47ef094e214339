"""The framing from 0.9 on ("VSR"): heads of 256 bytes, sessions, numbered requests, evictions.

    heads               what stands before every body
    operations          which operation stands for which command, and the result sections of replies
    evictions           the end of a session, as the client gets to know it
    recognition         telling this framing from the classic one by its bytes
    admission           which requests a server takes from a client
    replies             which operation, marker and positions a reply carries
    server_connection   requests in, replies out
    client_session      what a client keeps over its connections
    client_connection   requests out, replies in
    repeats             when a client sends a request once more

Payloads of commands are not here: the registry has them for every dialect. No module of this
package has a clock, a source of random bytes or a socket.
"""
