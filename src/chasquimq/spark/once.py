"""placeholder"""
process_batch = None
