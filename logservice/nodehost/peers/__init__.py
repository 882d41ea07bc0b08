"""Questions between stores: what one store asks another, and who is answered.

`question.py` says what a question is (start there); `requests.py` asks questions, answers them and
refuses those who may not ask. Each question is declared beside the code that answers it: the shape
of its messages is that code's business. Everything in `nodehost/` and above may import this
package; it imports the transport's seam and nothing of the replicas.
"""
