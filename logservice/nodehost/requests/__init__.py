"""Requests of one replica, from their arrival to their outcome."""
