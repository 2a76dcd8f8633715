"""What the connection and the layers of middleware tell each other in the scope of a request."""

PLACE = "has_place"  # it was admitted to the queue when its bytes arrived
HOLD = "hold"  # lets a rejected request wait for its turn
UNREAD = "unread_body"  # its body would take long to read, so its answer closes the connection
KEY_CLASS = "key_class"  # of its valid key
CHARGE = "charge"  # the rate limit and the number of its key
UPLOAD_S = "upload_seconds"  # how long its body took to arrive
LOG = "log"  # fields of its log line
